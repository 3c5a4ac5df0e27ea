package evenq;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** mqadmin, run in this JVM again and again: what it prints is the answer. */
final class Admin {
    private static final int POLL_MILLIS = 50;

    // what the running command has printed as errors; the hook below still needs it when the command ends the JVM
    private volatile ByteArrayOutputStream errors = new ByteArrayOutputStream();
    private volatile long running;

    Admin(Wire wire) {
        // wrong arguments make the tool call System.exit: say why before this JVM is gone
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            if (running != 0) {
                wire.failure(running, errors.toString(StandardCharsets.UTF_8));
            }
        }));
    }

    synchronized Map<String, Object> run(long id, String[] arguments) throws InterruptedException {
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        errors = new ByteArrayOutputStream();
        PrintStream out = System.out;
        PrintStream err = System.err;
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
        running = id;
        try {
            runHurried(() -> MQAdminStartup.main0(arguments, null));
        } finally {
            running = 0;
            System.setOut(out);
            System.setErr(err);
        }
        return Wire.fields(
            "out", printed.toString(StandardCharsets.UTF_8),
            "err", errors.toString(StandardCharsets.UTF_8));
    }

    /**
     * Each command waits at its end for its client's event thread, which looks up every 3 s only: wake that, again and
     * again. The group keeps the threads of other clients in this JVM out of it.
     */
    private static void runHurried(Runnable command) throws InterruptedException {
        ThreadGroup group = new ThreadGroup("mqadmin");
        Thread runner = new Thread(group, command);
        runner.start();
        while (runner.isAlive()) {
            runner.join(POLL_MILLIS);
            Thread[] threads = new Thread[group.activeCount() + 8];
            for (int i = group.enumerate(threads) - 1; i >= 0; i--) {
                if (threads[i].getName().startsWith("NettyEventExecutor")) {
                    threads[i].interrupt();
                }
            }
        }
    }
}
