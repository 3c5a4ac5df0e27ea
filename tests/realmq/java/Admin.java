package evenq;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** mqadmin, run in this JVM again and again: what it prints is the answer. */
final class Admin {
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

    synchronized Map<String, Object> run(long id, String[] arguments) throws Exception {
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        errors = new ByteArrayOutputStream();
        PrintStream out = System.out;
        PrintStream err = System.err;
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
        running = id;
        try {
            Hurry.through(() -> {
                Commands.forget();
                MQAdminStartup.main0(arguments, null);
                return null;
            });
        } finally {
            running = 0;
            System.setOut(out);
            System.setErr(err);
        }
        return Wire.fields(
            "out", printed.toString(StandardCharsets.UTF_8),
            "err", errors.toString(StandardCharsets.UTF_8));
    }

    private static final class Commands extends MQAdminStartup {
        /** Some commands keep a client that they have closed: each run gets new ones. */
        static void forget() {
            SUB_COMMANDS.clear();
        }
    }
}
