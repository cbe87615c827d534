package ingestor;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Writes log entries on S3 by a PUT that the store refuses if the key is taken (If-None-Match: *).
 *
 * Delta's own store writes without a condition and so overwrites another program's entry. This needs hadoop-aws 3.4.2 or
 * newer; an older one does not know the option, and `must` makes it fail.
 */
public class S3LogStore extends S3SingleDriverLogStore {
    private static final String CONDITIONAL = "fs.option.create.conditional.overwrite";
    private static final String CHANGED = "org.apache.hadoop.fs.s3a.RemoteFileChangedException";

    public S3LogStore(Configuration conf) {
        super(conf);
    }

    @Override
    public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration conf) throws IOException {
        if (overwrite) {
            super.write(path, actions, true, conf);
            return;
        }
        byte[] mine = LocalLogStore.bytes(actions);
        FileSystem files = path.getFileSystem(conf);
        if (files.exists(path)) { // saves a PUT; the condition decides
            throw new FileAlreadyExistsException(path.toString());
        }
        try {
            put(files, path, mine);
        } catch (IOException error) {
            if (!refused(error)) {
                throw error;
            }
            settle(files, path, mine, error);
        }
    }

    /** Write an entry, then another under the same name; throw if the store accepts the second. */
    public void probe(Path path, Configuration conf) throws IOException {
        FileSystem files = path.getFileSystem(conf);
        put(files, path, new byte[] {'1'});
        try {
            put(files, path, new byte[] {'2'});
        } catch (IOException error) {
            if (refused(error)) {
                return;
            }
            throw error;
        }
        throw new IOException("the second of two entries was taken too");
    }

    private static void put(FileSystem files, Path path, byte[] mine) throws IOException {
        FSDataOutputStreamBuilder<?, ?> builder = files.createFile(path);
        builder.overwrite(false);
        builder.must(CONDITIONAL, true);
        try (FSDataOutputStream out = builder.build()) {
            out.write(mine);
        }
    }

    /** Return whether any cause says that the key is taken: 412, or 409 while another PUT is under way. */
    private static boolean refused(Throwable error) {
        for (Throwable at = error; at != null; at = at.getCause()) {
            String text = String.valueOf(at.getMessage());
            if (at instanceof org.apache.hadoop.fs.FileAlreadyExistsException || CHANGED.equals(at.getClass().getName())) {
                return true;
            }
            if (text.contains("Status Code: 412") || text.contains("Status Code: 409")) {
                return true;
            }
        }
        return false;
    }

    /** The key is taken: return if by this very entry (the answer to an earlier try was lost), otherwise throw. */
    private static void settle(FileSystem files, Path path, byte[] mine, IOException error) throws IOException {
        byte[] there;
        try (FSDataInputStream in = files.open(path)) {
            there = in.readAllBytes();
        } catch (FileNotFoundException gone) {
            throw error;
        }
        if (!Arrays.equals(there, mine)) {
            FileAlreadyExistsException taken = new FileAlreadyExistsException(path.toString());
            taken.initCause(error);
            throw taken;
        }
    }
}
