package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// object is a JSON object whose values are still text. Keys are matched exactly, which decoding into a
// struct would not do.
type object map[string]json.RawMessage

// parse reads one line into row, reusing row.IDs. Keys it does not know are left alone.
func parse(line []byte, row *Row) error {
	var o object
	if err := json.Unmarshal(line, &o); err != nil {
		return notAnObject(err)
	}
	if o == nil {
		return errors.New("null is no JSON object")
	}
	*row = Row{N: row.N, IDs: row.IDs[:0]}
	// One problem is enough to say; of several the first in this order, which is the format's.
	var errs [7]error
	row.StampNs, errs[0] = o.ms("timestamp", "created_time", true)
	row.Input, errs[1] = o.whole("input_length", "input_tokens", true)
	row.Output, errs[2] = o.whole("output_length", "output_tokens", true)
	row.IDs, errs[3] = o.ids(row.IDs)
	row.Session, errs[4] = o.name("session_id")
	row.DelayNs, errs[5] = o.ms("delay", "", false)
	row.Priority, errs[6] = o.whole("priority", "", false)
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return row.check()
}

// notAnObject says why a line is no JSON object, in the words of JSON in place of those of Go types.
func notAnObject(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fmt.Errorf("a JSON %s where an object is due", wrong.Value)
	}
	return fmt.Errorf("no JSON object: %w", err)
}

// get is the value of key. A null is an absent value: some writers leave optional keys in that way.
func (o object) get(key string) (json.RawMessage, bool) {
	value, ok := o[key]
	return value, ok && string(value) != "null"
}

// field is the value of key or of its alias and the name it was given; a nil value is an absent one.
func (o object) field(key, alias string, must bool) (json.RawMessage, string, error) {
	value, ok := o.get(key)
	other, twice := o.get(alias)
	switch {
	case ok && twice:
		return nil, key, fmt.Errorf("%s and its other name %s are both given", key, alias)
	case ok:
		return value, key, nil
	case twice:
		return other, alias, nil
	case must:
		return nil, key, fmt.Errorf("no %s", key)
	}
	return nil, key, nil
}

// whole is a whole number written as one.
func (o object) whole(key, alias string, must bool) (int, error) {
	value, name, err := o.field(key, alias, must)
	if err != nil || value == nil {
		return 0, err
	}
	// 54 bits with the sign: whole numbers that every JSON reader keeps exact.
	n, err := strconv.ParseInt(string(value), 10, 54)
	if err != nil {
		return 0, fmt.Errorf("%s: want a whole number, got %s", name, excerpt(value))
	}
	return int(n), nil
}

// ms is a time in ms, whole or not, as ns.
func (o object) ms(key, alias string, must bool) (int64, error) {
	value, name, err := o.field(key, alias, must)
	if err != nil || value == nil {
		return 0, err
	}
	ns, ok := parseMs(string(value))
	if !ok {
		return 0, fmt.Errorf("%s: want ms from 0 to %d, got %s", name, int64(maxStampMs), excerpt(value))
	}
	return ns, nil
}

// parseMs reads a JSON number of ms to the nanosecond, without the rounding that a float would bring to
// the ms of a calendar time.
func parseMs(s string) (ns int64, ok bool) {
	if strings.ContainsAny(s, "eE") {
		ms, err := strconv.ParseFloat(s, 64)
		if err != nil || ms < 0 || ms > maxStampMs {
			return 0, false
		}
		return int64(math.Round(ms * nsPerMs)), true
	}
	whole, fraction, _ := strings.Cut(s, ".")
	ms, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || ms < 0 || ms > maxStampMs || whole == "-0" {
		return 0, false
	}
	ns = ms * nsPerMs
	// Six digits are nanoseconds; what is below is cut off.
	for i, unit := 0, int64(nsPerMs/10); i < len(fraction) && unit > 0; i, unit = i+1, unit/10 {
		ns += int64(fraction[i]-'0') * unit
	}
	return ns, true
}

// name is a name: a string, or a whole number, which some traces use for one.
func (o object) name(key string) (string, error) {
	value, ok := o.get(key)
	if !ok {
		return "", nil
	}
	if _, err := strconv.ParseInt(string(value), 10, 64); err == nil {
		return string(value), nil
	}
	var s string
	if value[0] != '"' || json.Unmarshal(value, &s) != nil {
		return "", fmt.Errorf("%s: want a string or a whole number, got %s", key, excerpt(value))
	}
	return s, nil
}

// ids appends the block ids to dst. The value is valid JSON, so only what is no list of whole numbers in
// range has to be found.
func (o object) ids(dst []uint64) ([]uint64, error) {
	value, ok := o.get("hash_ids")
	if !ok {
		return dst, errors.New("no hash_ids")
	}
	if value[0] != '[' {
		return dst, fmt.Errorf("hash_ids: want a list, got %s", excerpt(value))
	}
	// By hand, because most of a trace is ids: decoding into a slice takes longer and turns null into 0.
	for rest := value[1 : len(value)-1]; len(rest) > 0; {
		if isGap(rest[0]) {
			rest = rest[1:]
			continue
		}
		id, n := leadingID(rest)
		if n == 0 {
			return dst, fmt.Errorf("hash_ids[%d]: want a whole number from 0 to 2^53, got %s", len(dst), excerpt(element(value, len(dst))))
		}
		dst, rest = append(dst, id), rest[n:]
	}
	return dst, nil
}

// isGap says that c only separates the elements of a list.
func isGap(c byte) bool { return c == ',' || c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// leadingID is the id at the start of b and its length; 0 means there is none.
func leadingID(b []byte) (id uint64, n int) {
	for n < len(b) && '0' <= b[n] && b[n] <= '9' {
		id = id*10 + uint64(b[n]-'0')
		if n++; id > maxID {
			return 0, 0
		}
	}
	if n < len(b) && !isGap(b[n]) {
		return 0, 0
	}
	return id, n
}

// element is the text of one element of a JSON list, for an error.
func element(list json.RawMessage, i int) json.RawMessage {
	var all []json.RawMessage
	if json.Unmarshal(list, &all) != nil || i >= len(all) {
		return list
	}
	return all[i]
}

// excerpt is the beginning of a value, short enough for an error.
func excerpt(value json.RawMessage) string {
	const most = 40 // bytes
	if len(value) > most {
		return strings.ToValidUTF8(string(value[:most]), "") + "..."
	}
	return string(value)
}

// appendString writes s as a JSON string.
func appendString(dst []byte, s string) []byte {
	quoted, _ := json.Marshal(s) // a string always has a JSON form
	return append(dst, quoted...)
}
