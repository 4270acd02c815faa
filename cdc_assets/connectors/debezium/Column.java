// A column of a topic's events in Arrow's own layout, so that the capture takes its bytes as they are (`connectors/engine/columns.py`).
// A struct has a column for each field, an array one for its elements, a map one for keys and one for values.
//
// A value's row is given, and rows before it that have no value are null: the fields of an absent `before` cost nothing.
// A text that is the same in all rows, as most of a source block is, is kept once. Compiled by Janino, as `Encoder.java`.

import java.io.ByteArrayOutputStream;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.data.Date;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Time;
import org.apache.kafka.connect.data.Timestamp;

public class Column {
    private static final int BITS = 0;
    private static final int INT8 = 1;
    private static final int INT16 = 2;
    private static final int INT32 = 3;
    private static final int INT64 = 4;
    private static final int FLOAT = 5;
    private static final int DOUBLE = 6;
    private static final int DECIMAL = 7;
    private static final int TEXT = 8;
    private static final int BYTES = 9;
    private static final int STRUCT = 10;
    private static final int LIST = 11;
    private static final int MAP = 12;
    private static final int[] WIDTHS = {0, 1, 2, 4, 8, 4, 8, 16};
    // Bytes of a buffer that is used again: there may be thousands of tables.
    private static final int KEPT = 1 << 18;
    private static final byte[] NOTHING = new byte[0];

    private final int kind;
    private final int scale;
    private final int digits;
    private final String logical;
    private Column[] children = new Column[0];
    private Field[] fields = new Field[0];
    private boolean[] hasDefault = new boolean[0];
    private int rows = 0;
    private int nulls = 0;
    private byte[] valid = NOTHING;
    private ByteBuffer values = wrap(NOTHING);
    private ByteBuffer ends = wrap(NOTHING);
    private int used = 0;
    private Object constant = null;

    public Column(Schema schema) {
        logical = schema.name();
        scale = isNarrow(schema) ? Integer.parseInt((String) schema.parameters().get("scale")) : 0;
        digits = isNarrow(schema) ? Integer.parseInt((String) schema.parameters().get("connect.decimal.precision")) : 0;
        kind = kindOf(schema);
        if (kind == STRUCT) {
            int count = schema.fields().size();
            children = new Column[count];
            fields = new Field[count];
            hasDefault = new boolean[count];
            for (int i = 0; i < count; i++) {
                fields[i] = (Field) schema.fields().get(i);
                children[i] = new Column(fields[i].schema());
                hasDefault[i] = fields[i].schema().defaultValue() != null;
            }
        } else if (kind == LIST) {
            children = new Column[] {new Column(schema.valueSchema())};
        } else if (kind == MAP) {
            children = new Column[] {new Column(schema.keySchema()), new Column(schema.valueSchema())};
        }
    }

    private static int kindOf(Schema schema) {
        String type = schema.type().getName();
        if (type.equals("boolean")) return BITS;
        if (type.equals("int8")) return INT8;
        if (type.equals("int16")) return INT16;
        if (type.equals("int32")) return INT32;
        if (type.equals("int64")) return INT64;
        if (type.equals("float32")) return FLOAT;
        if (type.equals("float64")) return DOUBLE;
        if (type.equals("string")) return TEXT;
        if (type.equals("bytes")) return isNarrow(schema) ? DECIMAL : BYTES;
        if (type.equals("struct")) return STRUCT;
        return type.equals("array") ? LIST : MAP;
    }

    // A Decimal that the lake's type holds (`connectors/engine/schemas.py`, is_narrow); any other stays its unscaled bytes.
    private static boolean isNarrow(Schema schema) {
        if (!Decimal.LOGICAL_NAME.equals(schema.name())) return false;
        String precision = (String) schema.parameters().get("connect.decimal.precision");
        String point = (String) schema.parameters().get("scale");
        if (precision == null || point == null) return false;
        int most = Integer.parseInt(precision);
        return most > 0 && most <= 38 && Integer.parseInt(point) >= 0 && Integer.parseInt(point) <= most;
    }

    public void put(int row, Object value) {
        if (value == null) return;
        pad(row);
        mark();
        if (kind == STRUCT) {
            Struct struct = (Struct) value;
            for (int i = 0; i < children.length; i++) {
                children[i].put(rows, hasDefault[i] ? struct.getWithoutDefault(fields[i].name()) : struct.get(fields[i]));
            }
        } else if (kind == TEXT) {
            putText((String) value);
        } else if (kind == LIST) {
            List list = (List) value;
            for (int i = 0; i < list.size(); i++) children[0].put(used + i, list.get(i));
            used += list.size();
            children[0].pad(used);
            end(rows, used);
        } else if (kind == MAP) {
            Iterator entries = ((Map) value).entrySet().iterator();
            while (entries.hasNext()) {
                Map.Entry entry = (Map.Entry) entries.next();
                putEntry(entry.getKey(), entry.getValue());
            }
            end(rows, used);
        } else if (kind == BYTES) {
            putBytes(bytesOf(value));
            end(rows, used);
        } else {
            putFixed(value);
        }
        rows++;
    }

    // An entry of a map's current row.
    public void putEntry(Object key, Object value) {
        children[0].put(used, key);
        children[1].put(used, value);
        used++;
        children[0].pad(used);
        children[1].pad(used);
    }

    // The map whose entries were put.
    public void endMap(int row) {
        pad(row);
        mark();
        end(rows, used);
        rows++;
    }

    // The current row is not null.
    private void mark() {
        if (rows >> 3 >= valid.length) valid = Arrays.copyOf(valid, Math.max(16, 2 * valid.length));
        valid[rows >> 3] |= (byte) (1 << (rows & 7));
    }

    private void pad(int row) {
        if (row <= rows) return;
        if (kind == TEXT) spread();
        nulls += row - rows;
        int bytes = (row + 7) >> 3;
        if (bytes > valid.length) valid = Arrays.copyOf(valid, Math.max(bytes, 2 * valid.length));
        if (kind >= TEXT && kind != STRUCT) {
            int at = rows == 0 ? 0 : ends.getInt(4 * rows);
            for (int i = rows; i < row; i++) end(i, at);
        }
        rows = row;
    }

    private void end(int row, int at) {
        ends = room(ends, 4 * row + 8);
        ends.putInt(4 * row + 4, at);
    }

    private void putText(String text) {
        if (rows == 0) {
            constant = text;
            return;
        }
        if (constant != null) {
            if (constant == text || constant.equals(text)) return;
            spread();
        }
        putBytes(utf8(text));
        end(rows, used);
    }

    // The rows so far hold one text: write it for each of them.
    private void spread() {
        if (constant == null) return;
        byte[] bytes = utf8((String) constant);
        constant = null;
        for (int i = 0; i < rows; i++) {
            putBytes(bytes);
            end(i, used);
        }
    }

    private static byte[] utf8(String text) {
        return text.getBytes(java.nio.charset.StandardCharsets.UTF_8);
    }

    private void putBytes(byte[] bytes) {
        values = room(values, used + bytes.length);
        System.arraycopy(bytes, 0, values.array(), used, bytes.length);
        used += bytes.length;
    }

    private byte[] bytesOf(Object value) {
        if (value instanceof byte[]) return (byte[]) value;
        if (value instanceof BigDecimal) return ((BigDecimal) value).unscaledValue().toByteArray();
        ByteBuffer buffer = (ByteBuffer) ((ByteBuffer) value).duplicate();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }

    private void putFixed(Object value) {
        int width = WIDTHS[kind];
        int at = width * rows;
        values = room(values, kind == BITS ? (rows >> 3) + 1 : at + width);
        if (kind == INT64) values.putLong(at, logical == null ? ((Long) value).longValue() : longOf(value));
        else if (kind == INT32) values.putInt(at, logical == null ? ((Integer) value).intValue() : intOf(value));
        else if (kind == INT16) values.putShort(at, ((Number) value).shortValue());
        else if (kind == INT8) values.put(at, ((Number) value).byteValue());
        else if (kind == DOUBLE) values.putDouble(at, ((Number) value).doubleValue());
        else if (kind == FLOAT) values.putFloat(at, ((Number) value).floatValue());
        else if (kind == DECIMAL) putDecimal(at, (BigDecimal) value);
        else if (((Boolean) value).booleanValue()) values.put(rows >> 3, (byte) (values.get(rows >> 3) | 1 << (rows & 7)));
    }

    // The lake's time stamps count microseconds.
    private long longOf(Object value) {
        if (!Timestamp.LOGICAL_NAME.equals(logical)) return ((Number) value).longValue();
        return Math.multiplyExact(value instanceof Number ? ((Number) value).longValue() : ((java.util.Date) value).getTime(), 1000L);
    }

    private int intOf(Object value) {
        if (value instanceof Number) return ((Number) value).intValue();
        java.util.Date date = (java.util.Date) value;
        return Date.LOGICAL_NAME.equals(logical) ? Date.fromLogical(Date.SCHEMA, date) : Time.fromLogical(Time.SCHEMA, date);
    }

    private void putDecimal(int at, BigDecimal decimal) {
        BigDecimal given = decimal.scale() == scale ? decimal : decimal.setScale(scale);
        if (given.precision() > digits) throw new ArithmeticException("A Decimal has more than its " + digits + " digits");
        BigInteger number = given.unscaledValue();
        values.putLong(at, number.longValue());
        values.putLong(at + 8, number.bitLength() < 64 ? number.signum() >> 1 : number.shiftRight(64).longValue());
    }

    private static ByteBuffer wrap(byte[] bytes) {
        return ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    }

    private static ByteBuffer room(ByteBuffer buffer, int size) {
        if (size <= buffer.capacity()) return buffer;
        return wrap(Arrays.copyOf(buffer.array(), Math.max(size, Math.max(64, 2 * buffer.capacity()))));
    }

    // Writes the column with so many rows, each part at a multiple of eight bytes, and empties it. Four numbers come first:
    // whether one text stands for all rows, the rows, how many are null, and the bytes of texts. A column of nulls is no more.
    public void write(ByteArrayOutputStream out, int count) {
        pad(count);
        boolean single = constant != null;
        if (single) {
            putBytes(utf8((String) constant));
        }
        ByteBuffer head = wrap(new byte[16]);
        head.putInt(0, single ? 1 : 0);
        head.putInt(4, rows);
        head.putInt(8, nulls);
        head.putInt(12, used);
        part(out, head.array(), 16);
        if (nulls < rows) {
            if (nulls > 0) part(out, valid, (rows + 7) >> 3);
            if (single) {
                part(out, values.array(), used);
            } else if (kind < TEXT) {
                int bytes = kind == BITS ? (rows + 7) >> 3 : WIDTHS[kind] * rows;
                values = room(values, bytes);
                part(out, values.array(), bytes);
            } else if (kind != STRUCT) {
                part(out, ends.array(), 4 * rows + 4);
                if (kind == TEXT || kind == BYTES) part(out, values.array(), used);
            }
            for (int i = 0; i < children.length; i++) children[i].write(out, kind == STRUCT ? rows : used);
        }
        clear();
    }

    private void clear() {
        valid = emptied(valid, (rows + 7) >> 3);
        int bytes = kind == BITS ? (rows + 7) >> 3 : kind < TEXT ? WIDTHS[kind] * rows : 0;
        if (values.capacity() > KEPT) values = wrap(NOTHING);
        else Arrays.fill(values.array(), 0, Math.min(bytes, values.capacity()), (byte) 0);
        if (ends.capacity() > KEPT) ends = wrap(NOTHING);
        rows = 0;
        nulls = 0;
        used = 0;
        constant = null;
    }

    private static byte[] emptied(byte[] bytes, int used) {
        if (bytes.length > KEPT) return NOTHING;
        Arrays.fill(bytes, 0, Math.min(used, bytes.length), (byte) 0);
        return bytes;
    }

    private static void part(ByteArrayOutputStream out, byte[] bytes, int size) {
        out.write(bytes, 0, size);
        out.write(NOTHINGS, 0, -size & 7);
    }

    private static final byte[] NOTHINGS = new byte[8];
}
