package testing;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;

/** The local file system, with a pause between its look whether a name is taken and the rename to it. */
public class SlowRename extends DelegateToFileSystem {
    public SlowRename(URI uri, Configuration conf) throws IOException, URISyntaxException {
        super(uri, new Slow(conf.getLong("testing.delay.ms", 0)), conf, "file", false);
    }

    @Override
    public int getUriDefaultPort() {
        return -1;
    }

    private static class Slow extends RawLocalFileSystem {
        private final long delay;

        Slow(long delay) {
            this.delay = delay;
        }

        @Override
        public boolean rename(Path from, Path to) throws IOException {
            pause(delay);
            return super.rename(from, to);
        }
    }

    static void pause(long milliseconds) throws IOException {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new IOException(error);
        }
    }
}
