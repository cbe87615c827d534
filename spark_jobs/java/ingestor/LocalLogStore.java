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
 * Log entries on a local disk, each placed by a hard link, which the file system refuses when the name is taken.
 *
 * Delta's own store looks whether the entry is there and then renames, and a rename replaces what has come in between: an
 * append that another program has just acknowledged. delta-rs places its entries by hard links too, so of all writers one
 * wins. What is placed has been synced.
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

    /** Give the draft its name, or throw java.nio.file.FileAlreadyExistsException. A step of its own for tests to hold up. */
    protected void place(java.nio.file.Path draft, java.nio.file.Path target) throws IOException {
        Files.createLink(target, draft);
    }

    /** True, though an entry never is: Delta asks it for its checkpoints, and only then renames one when it is whole. */
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
