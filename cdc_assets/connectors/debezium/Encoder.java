// Turns the engine's records into columns, one set for each topic and pair of schemas (`Column.java`). It is compiled when
// the child process starts, by Janino, which Spark carries: no compiler and no built file is needed. Janino knows no
// lambdas and erases generics, hence the casts.
//
// The reader knows the schemas (they are sent once), so the values stand there in the layout that Arrow has for them, and
// are neither written as text nor read from it.

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.debezium.engine.RecordChangeEvent;
import java.io.ByteArrayOutputStream;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;

public class Encoder {
    // A topic with a pair of schemas, and the columns that this call has for it.
    public static class Group {
        int id;
        String topic;
        Schema key;
        Schema value;
        int rows;
        boolean told;
        Column numbers = new Column(Schema.INT64_SCHEMA);
        Column keys;
        Column values;
        Column headers = new Column(HEADERS);
    }

    private static final Schema HEADERS = SchemaBuilder.map(Schema.STRING_SCHEMA, Schema.OPTIONAL_STRING_SCHEMA).build();

    private static final int MOST_MESSAGES = 1000;
    private final ObjectMapper mapper = new ObjectMapper();
    private final JsonConverter plain = new JsonConverter();
    private final JsonConverter described = new JsonConverter();
    private final Map groups = new HashMap();
    private final Map newestValue = new HashMap();
    private List held = new ArrayList();
    private byte[] body = new byte[0];
    private Object lastEvent = null;
    private int lastId = 0;

    public Encoder() {
        Map options = new HashMap();
        options.put("schemas.enable", "false");
        options.put("replace.null.with.default", "false");
        plain.configure(options, false);
        described.configure(new HashMap(), false);
    }

    public int held() {
        return held.size();
    }

    public Object lastEvent() {
        return lastEvent;
    }

    public byte[] body() {
        return body;
    }

    // Heartbeats come although nothing is new, so they say nothing of what waits.
    public boolean areHeartbeats(List records) {
        for (int i = 0; i < records.size(); i++) {
            Schema value = recordOf(records, i).valueSchema();
            if (value == null || !"io.debezium.connector.common.Heartbeat".equals(value.name())) return false;
        }
        return true;
    }

    // Encodes what is complete and returns a description of it, or null if all of it waits. Records whose offsets agree
    // belong together (the three events of a changed key, the tables of one TRUNCATE), and a batch must not end between
    // them; so those at the end wait for the next one, or for `all`. Records of an unfinished snapshot share an offset,
    // and no batch ends among them. Nor does one end behind a message in a transaction of PostgreSQL's, as far as few wait.
    public byte[] encode(List more, boolean all) throws Exception {
        List records = held;
        records.addAll(more);
        int end = records.size();
        if (!all && end > 0) {
            SourceRecord last = recordOf(records, end - 1);
            if (!isUnfinishedSnapshot(last.sourceOffset())) {
                Map place = place(last);
                end--;
                while (end > 0 && place.equals(place(recordOf(records, end - 1)))) end--;
                end = withoutMessages(records, end);
            }
        }
        held = new ArrayList(records.subList(end, records.size()));
        if (end == 0) return null;
        lastEvent = records.get(end - 1);
        List touched = new ArrayList();
        Map offsets = new LinkedHashMap();
        boolean anew = false;
        for (int i = 0; i < end; i++) {
            SourceRecord record = recordOf(records, i);
            Object snapshot = record.sourceOffset().get("snapshot");
            anew = anew || (snapshot != null && "INITIAL".equals(String.valueOf(snapshot)));
            Group group = groupOf(record);
            if (group.rows == 0) touched.add(group);
            put(group, i, record);
            offsets.put(record.sourcePartition(), record);
        }
        return description(touched, offsets, end, anew);
    }

    private static SourceRecord recordOf(List events, int place) {
        return (SourceRecord) ((RecordChangeEvent) events.get(place)).record();
    }

    private static Map place(SourceRecord record) {
        Map found = new HashMap();
        Iterator entries = record.sourceOffset().entrySet().iterator();
        while (entries.hasNext()) {
            Map.Entry entry = (Map.Entry) entries.next();
            if (!String.valueOf(entry.getKey()).startsWith("transaction_")) found.put(entry.getKey(), entry.getValue());
        }
        return found;
    }

    // Started behind such a message, the connector would send it again, and count it twice in its transaction's END.
    private static int withoutMessages(List records, int most) {
        int end = most;
        while (end > 0 && isMessageInTransaction(recordOf(records, end - 1).sourceOffset())) {
            if (records.size() - --end > MOST_MESSAGES) return most;
        }
        return end;
    }

    // Only a message outside of transactions moves the place up to which the connector has processed the log.
    private static boolean isMessageInTransaction(Map offset) {
        Object processed = offset.get("lsn_proc");
        return "MESSAGE".equals(String.valueOf(offset.get("messageType"))) && (processed == null || !processed.equals(offset.get("lsn")));
    }

    private static boolean isUnfinishedSnapshot(Map offset) {
        Object snapshot = offset.get("snapshot");
        boolean running = snapshot != null && !"false".equals(String.valueOf(snapshot));
        return running && !"true".equals(String.valueOf(offset.get("snapshot_completed")));
    }

    // Schemas are compared by identity first, as the connectors keep them; the hash of a deep schema is slow.
    private Group groupOf(SourceRecord record) {
        Schema value = record.valueSchema();
        if (value == null) value = (Schema) newestValue.get(record.topic());
        else newestValue.put(record.topic(), value);
        List candidates = (List) groups.get(record.topic());
        if (candidates == null) {
            candidates = new ArrayList();
            groups.put(record.topic(), candidates);
        }
        for (int i = candidates.size() - 1; i >= 0; i--) {
            Group group = (Group) candidates.get(i);
            if (group.key == record.keySchema() && group.value == value) return group;
        }
        for (int i = 0; i < candidates.size(); i++) {
            Group group = (Group) candidates.get(i);
            if (Objects.equals(group.key, record.keySchema()) && Objects.equals(group.value, value)) {
                group.key = record.keySchema();
                group.value = value;
                return group;
            }
        }
        Group made = new Group();
        made.id = ++lastId;
        made.topic = record.topic();
        made.key = record.keySchema();
        made.value = value;
        made.keys = made.key == null ? null : new Column(made.key);
        made.values = value == null ? null : new Column(value);
        candidates.add(made);
        return made;
    }

    private void put(Group group, int number, SourceRecord record) throws Exception {
        int row = group.rows++;
        group.numbers.put(row, Long.valueOf(number));
        if (group.keys != null) group.keys.put(row, record.key());
        if (group.values != null) group.values.put(row, record.value());
        Iterator headers = record.headers().iterator();
        while (headers.hasNext()) {
            Header header = (Header) headers.next();
            group.headers.putEntry(header.key(), headerText(record.topic(), header));
        }
        group.headers.endMap(row);
    }

    private String headerText(String topic, Header header) throws Exception {
        if (header.value() == null || header.value() instanceof String) return (String) header.value();
        return new String(plain.fromConnectData(topic, header.schema(), header.value()), "UTF-8");
    }

    private byte[] description(List touched, Map offsets, int rows, boolean anew) throws Exception {
        ObjectNode made = mapper.createObjectNode();
        made.put("rows", rows);
        made.put("anew", anew);
        ArrayNode runs = made.putArray("groups");
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        for (int i = 0; i < touched.size(); i++) {
            Group group = (Group) touched.get(i);
            ObjectNode run = runs.addObject();
            run.put("id", group.id);
            run.put("topic", group.topic);
            run.put("rows", group.rows);
            if (!group.told) {
                run.set("key", group.key == null ? null : described.asJsonSchema(group.key));
                run.set("value", group.value == null ? null : described.asJsonSchema(group.value));
                group.told = true;
            }
            int before = all.size();
            group.numbers.write(all, group.rows);
            if (group.keys != null) group.keys.write(all, group.rows);
            if (group.values != null) group.values.write(all, group.rows);
            group.headers.write(all, group.rows);
            run.put("bytes", all.size() - before);
            group.rows = 0;
        }
        boolean unfinished = false;
        ArrayNode pairs = made.putArray("offsets");
        Iterator records = offsets.values().iterator();
        while (records.hasNext()) {
            SourceRecord record = (SourceRecord) records.next();
            ArrayNode pair = pairs.addArray();
            pair.add(mapper.readTree(plain.fromConnectData("", null, record.sourcePartition())));
            pair.add(mapper.readTree(plain.fromConnectData("", null, record.sourceOffset())));
            unfinished = unfinished || isUnfinishedSnapshot(record.sourceOffset());
        }
        made.put("unfinished", unfinished);
        body = all.toByteArray();
        return mapper.writeValueAsBytes(made);
    }
}
