// Turns the engine's records into lines of JSON, one run of lines for each topic and pair of schemas. It is compiled when
// the child process starts, by Janino, which Spark carries: no compiler and no built file is needed. Janino knows no
// lambdas and erases generics, hence the casts.
//
// The reader knows the schemas (they are sent once), so a value stands in the shape that Arrow reads fastest: bytes as
// base64, a Decimal of at most 38 known digits as plain text and any other as base64 of its unscaled bytes, dates and
// times as numbers, floating point numbers as text because JSON has no NaN, maps and headers as lists of entries.

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.debezium.engine.RecordChangeEvent;
import java.io.ByteArrayOutputStream;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.kafka.connect.data.ConnectSchema;
import org.apache.kafka.connect.data.Date;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Time;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;

public class Encoder {
    // A topic with a pair of schemas, and the lines that this call has for it.
    public static class Group {
        int id;
        String topic;
        Schema key;
        Schema value;
        int rows;
        int longest;
        boolean told;
        ByteArrayOutputStream bytes = new ByteArrayOutputStream(0);
        JsonGenerator out;
    }

    // Bytes of a buffer that is used again: there may be thousands of tables.
    private static final int KEPT = 1 << 20;

    private final JsonFactory factory = new JsonFactory();
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
    // and no batch ends among them.
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
            }
        }
        held = new ArrayList(records.subList(end, records.size()));
        if (end == 0) return null;
        lastEvent = records.get(end - 1);
        List touched = new ArrayList();
        Map offsets = new LinkedHashMap();
        for (int i = 0; i < end; i++) {
            SourceRecord record = recordOf(records, i);
            Group group = groupOf(record);
            if (group.rows == 0) touched.add(group);
            writeLine(group, i, record);
            offsets.put(record.sourcePartition(), record);
        }
        return description(touched, offsets, end);
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
        candidates.add(made);
        return made;
    }

    private void writeLine(Group group, int number, SourceRecord record) throws Exception {
        int before = group.bytes.size();
        JsonGenerator out = factory.createGenerator(group.bytes);
        out.writeStartObject();
        out.writeNumberField("n", number);
        out.writeFieldName("key");
        write(out, record.keySchema(), record.key());
        out.writeFieldName("value");
        write(out, record.valueSchema(), record.value());
        out.writeFieldName("headers");
        out.writeStartArray();
        Iterator headers = record.headers().iterator();
        while (headers.hasNext()) {
            Header header = (Header) headers.next();
            out.writeStartObject();
            out.writeStringField("key", header.key());
            out.writeStringField("value", headerText(record.topic(), header));
            out.writeEndObject();
        }
        out.writeEndArray();
        out.writeEndObject();
        out.close();
        group.bytes.write('\n');
        group.rows++;
        group.longest = Math.max(group.longest, group.bytes.size() - before);
    }

    private String headerText(String topic, Header header) throws Exception {
        if (header.value() == null || header.value() instanceof String) return (String) header.value();
        return new String(plain.fromConnectData(topic, header.schema(), header.value()), "UTF-8");
    }

    private void write(JsonGenerator out, Schema schema, Object value) throws Exception {
        if (value == null) {
            out.writeNull();
        } else if (value instanceof Struct) {
            Struct struct = (Struct) value;
            List fields = struct.schema().fields();
            out.writeStartObject();
            for (int i = 0; i < fields.size(); i++) {
                Field field = (Field) fields.get(i);
                out.writeFieldName(field.name());
                write(out, field.schema(), struct.getWithoutDefault(field.name()));
            }
            out.writeEndObject();
        } else if (value instanceof String) {
            out.writeString((String) value);
        } else if (value instanceof Long) {
            out.writeNumber(((Long) value).longValue());
        } else if (value instanceof Boolean) {
            out.writeBoolean(((Boolean) value).booleanValue());
        } else if (value instanceof Float || value instanceof Double) {
            out.writeString(value.toString());
        } else if (value instanceof Integer || value instanceof Short || value instanceof Byte) {
            out.writeNumber(((Number) value).intValue());
        } else if (value instanceof BigDecimal) {
            BigDecimal decimal = (BigDecimal) value;
            if (isNarrow(schema)) out.writeString(decimal.toPlainString());
            else out.writeBinary(decimal.unscaledValue().toByteArray());
        } else if (value instanceof byte[]) {
            out.writeBinary((byte[]) value);
        } else if (value instanceof ByteBuffer) {
            ByteBuffer buffer = (ByteBuffer) ((ByteBuffer) value).duplicate();
            byte[] bytes = new byte[buffer.remaining()];
            buffer.get(bytes);
            out.writeBinary(bytes);
        } else if (value instanceof java.util.Date) {
            java.util.Date date = (java.util.Date) value;
            if (Date.LOGICAL_NAME.equals(schema.name())) out.writeNumber(Date.fromLogical(schema, date));
            else if (Time.LOGICAL_NAME.equals(schema.name())) out.writeNumber(Time.fromLogical(schema, date));
            else out.writeNumber(Timestamp.fromLogical(schema, date));
        } else if (value instanceof List) {
            List list = (List) value;
            out.writeStartArray();
            for (int i = 0; i < list.size(); i++) write(out, schema.valueSchema(), list.get(i));
            out.writeEndArray();
        } else if (value instanceof Map) {
            Iterator entries = ((Map) value).entrySet().iterator();
            out.writeStartArray();
            while (entries.hasNext()) {
                Map.Entry entry = (Map.Entry) entries.next();
                out.writeStartObject();
                out.writeStringField("key", (String) entry.getKey());
                out.writeFieldName("value");
                write(out, schema.valueSchema(), entry.getValue());
                out.writeEndObject();
            }
            out.writeEndArray();
        } else {
            throw new IllegalArgumentException("A value of " + value.getClass().getName() + " is in no Connect schema");
        }
    }

    private static boolean isNarrow(Schema schema) {
        String precision = (String) schema.parameters().get("connect.decimal.precision");
        return precision != null && Integer.parseInt(precision) <= 38;
    }

    private byte[] description(List touched, Map offsets, int rows) throws Exception {
        ObjectNode made = mapper.createObjectNode();
        made.put("rows", rows);
        ArrayNode runs = made.putArray("groups");
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        for (int i = 0; i < touched.size(); i++) {
            Group group = (Group) touched.get(i);
            ObjectNode run = runs.addObject();
            run.put("id", group.id);
            run.put("topic", group.topic);
            run.put("rows", group.rows);
            run.put("bytes", group.bytes.size());
            run.put("longest", group.longest);
            if (!group.told) {
                run.set("key", group.key == null ? null : described.asJsonSchema(group.key));
                run.set("value", group.value == null ? null : described.asJsonSchema(group.value));
                group.told = true;
            }
            group.bytes.writeTo(all);
            if (group.bytes.size() > KEPT) group.bytes = new ByteArrayOutputStream(0);
            else group.bytes.reset();
            group.rows = 0;
            group.longest = 0;
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
