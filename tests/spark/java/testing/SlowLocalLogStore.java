package testing;

import java.io.IOException;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;

/** Our log store, with a pause right before it places an entry. */
public class SlowLocalLogStore extends ingestor.LocalLogStore {
    private final long delay;

    public SlowLocalLogStore(Configuration conf) {
        super(conf);
        delay = conf.getLong("testing.delay.ms", 100);
    }

    @Override
    protected void place(Path draft, Path target) throws IOException {
        SlowRename.pause(delay);
        super.place(draft, target);
    }
}
