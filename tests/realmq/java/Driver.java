package evenq;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Plays any number of RocketMQ clients in one JVM, on command.
 *
 * <p>In, one JSON object a line: {@code {"id": 1, "do": "start", "kind": "push", "actor": "c1", …}} makes an actor,
 * {@code {"id": 2, "do": "assignment", "actor": "c1"}} tells it something, {@code {"id": 3, "do": "mqadmin", "arguments": […]}}
 * runs the admin tool, {@code {"id": 4, "do": "sql", …}} tries filters. Out, one JSON object a line: a reply or a failure
 * for each command (in the order in which they end), and the messages that consumers get. The end of the input ends the
 * JVM at once, as a crash would.
 */
public final class Driver {
    private interface Kind {
        Actor start(JSONObject settings, Wire wire) throws Exception;
    }

    private static final Map<String, Kind> KINDS = Map.of(
        "producer", Producer::new,
        "transactions", Transactions::new,
        "push", PushMember::new,
        "lite_pull", LitePullMember::new);

    private final Map<String, Actor> actors = new ConcurrentHashMap<>();
    private final Wire wire;
    private final Admin admin;

    private Driver(Wire wire) {
        this.wire = wire;
        this.admin = new Admin(wire);
    }

    public static void main(String[] args) throws IOException {
        Driver driver = new Driver(new Wire(new PrintStream(System.out, false, StandardCharsets.UTF_8)));
        // standard output belongs to the protocol; whatever else prints goes to the log
        System.setOut(System.err);
        ExecutorService threads = Executors.newCachedThreadPool();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JSONObject command = JSON.parseObject(line);
            threads.execute(() -> driver.answer(command));
        }
        Runtime.getRuntime().halt(0);
    }

    private void answer(JSONObject command) {
        long id = command.getLongValue("id");
        try {
            wire.reply(id, perform(id, command));
        } catch (Throwable error) {
            error.printStackTrace();
            wire.failure(id, error.toString());
        }
    }

    private Object perform(long id, JSONObject command) throws Exception {
        String verb = command.getString("do");
        String name = command.getString("actor");
        switch (verb) {
            case "mqadmin":
                return admin.run(id, command.getJSONArray("arguments").toArray(String.class));
            case "sql":
                return Sql.matches(command);
            case "start":
                Actor started = KINDS.get(command.getString("kind")).start(command, wire);
                actors.put(name, started);
                return started.act("id", command);
            case "stop":
                return Hurry.through(() -> actors.remove(name).act(verb, command));
            default:
                return actors.get(name).act(verb, command);
        }
    }
}
