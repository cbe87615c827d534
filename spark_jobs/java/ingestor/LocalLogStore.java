package ingestor;

import io.delta.storage.HadoopFileSystemLogStore;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.Iterator;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * Writes log entries on a local disk by a hard link, which the file system refuses if the name is taken.
 *
 * Delta's own store checks that the entry does not exist and then renames a file to it. The rename replaces an entry that
 * another program has written in between, perhaps an acknowledged append. delta-rs uses hard links too, so exactly one
 * writer wins. The file is synced before it gets its name.
 */
public class LocalLogStore extends HadoopFileSystemLogStore {
    public LocalLogStore(Configuration conf) {
        super(conf);
    }

    @Override
    public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration conf) throws IOException {
        java.nio.file.Path target = Paths.get(path.toUri().getPath());
        java.nio.file.Path folder = target.getParent();
        if (!Files.isDirectory(folder)) {
            throw new java.io.FileNotFoundException("No such file or directory: " + folder);
        }
        java.nio.file.Path draft = folder.resolve("." + target.getFileName() + "." + UUID.randomUUID() + ".tmp");
        try {
            sync(draft, ByteBuffer.wrap(bytes(actions)));
            if (overwrite) {
                Files.move(draft, target, StandardCopyOption.REPLACE_EXISTING, StandardCopyOption.ATOMIC_MOVE);
            } else {
                place(draft, target);
            }
        } finally {
            Files.deleteIfExists(draft);
        }
        try (FileChannel opened = FileChannel.open(folder, StandardOpenOption.READ)) {
            opened.force(true);
        }
    }

    /** Give the draft its name, or throw java.nio.file.FileAlreadyExistsException. Tests override it to delay this step. */
    protected void place(java.nio.file.Path draft, java.nio.file.Path target) throws IOException {
        Files.createLink(target, draft);
    }

    /** True for checkpoints, so that Delta writes one to a temporary name and renames it; an entry is never partial. */
    @Override
    public Boolean isPartialWriteVisible(Path path, Configuration conf) {
        return true;
    }

    private static void sync(java.nio.file.Path file, ByteBuffer content) throws IOException {
        try (FileChannel opened = FileChannel.open(file, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
            while (content.hasRemaining()) {
                opened.write(content);
            }
            opened.force(true);
        }
    }

    static byte[] bytes(Iterator<String> actions) throws IOException {
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        while (actions.hasNext()) {
            all.write(actions.next().getBytes(StandardCharsets.UTF_8));
            all.write('\n');
        }
        return all.toByteArray();
    }
}
