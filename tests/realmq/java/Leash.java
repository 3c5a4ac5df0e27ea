package evenq;

import java.io.IOException;
import java.util.Arrays;

/**
 * Runs another program's main, and ends with the process that holds the other end of standard input.
 *
 * <p>{@code java evenq.Leash org.apache.rocketmq.broker.BrokerStartup -c broker.conf}: however the test run
 * ends, its end of the pipe closes, and no server stays behind.
 */
public final class Leash {
    private Leash() {
    }

    public static void main(String[] args) throws Exception {
        Thread watch = new Thread(Leash::haltAtEnd, "leash");
        watch.setDaemon(true);
        watch.start();
        Class.forName(args[0])
            .getMethod("main", String[].class)
            .invoke(null, (Object) Arrays.copyOfRange(args, 1, args.length));
    }

    private static void haltAtEnd() {
        try {
            while (System.in.read() >= 0) {
                // nothing is ever said on it: only its end counts
            }
        } catch (IOException gone) {
            // as good as the end
        }
        Runtime.getRuntime().halt(1);
    }
}
