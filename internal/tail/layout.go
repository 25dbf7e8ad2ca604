package tail

import (
	"bytes"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// Forms of an event or a batch.
const (
	formArray = "array"
	formMap   = "map"
	formMixed = "mixed"
)

// layout is how a payload is built. Later batches of one engine may show more of it than the first.
type layout struct {
	// batch is the form of the whole, elements its length.
	batch    string
	elements int
	// events is the form of the events, empty when there is none.
	events string
	// store is the length of the last BlockStored array, 0 without one.
	store int
	// metadata says that a BlockStored array ends with a map, as only SGLang's does.
	metadata bool
	// keys are those of the BlockStored maps that tell versions apart.
	named, located, owned bool
	stored                bool // there is a BlockStored map
	// signed and binary are forms of hashes beside unsigned integers.
	signed, binary bool
	// message is what messages over gRPC show.
	message messageLayout
}

// short is the layout in a word: the events' form and the batch's length, as in "map/3".
func (l layout) short() string {
	if l.batch == formMessage {
		return formMessage
	}
	events := l.events
	if events == "" {
		events = "empty"
	}
	if l.batch == formMap {
		return events + "/map"
	}
	return fmt.Sprintf("%s/%d", events, l.elements)
}

// sentence tells the layout and whose it is like.
func (l layout) sentence() string {
	if l.batch == formMessage {
		return l.message.sentence()
	}
	batch := fmt.Sprintf("batches of %d elements", l.elements)
	if l.batch == formMap {
		batch = "batches that are maps"
	}
	hashes := "integers"
	switch {
	case l.binary:
		hashes = "bytes"
	case l.signed:
		hashes = "signed integers"
	}
	s := fmt.Sprintf("%s events in %s, hashes as %s", l.events, batch, hashes)
	if like := l.like(); like != "" {
		s += "; as " + like
	}
	return s
}

// like names the engine versions that send such stores, empty when there was no store to tell by.
func (l layout) like() string {
	switch {
	case l.owned:
		return "vLLM after 0.28"
	case l.located:
		return "vLLM 0.26 or newer"
	case l.named:
		return "vLLM 0.24 or newer"
	case l.stored:
		return "SGLang since September 2026"
	case l.metadata:
		return "SGLang until September 2026"
	}
	switch l.store {
	case 0:
		return ""
	case 6:
		return "vLLM 0.9"
	case 7:
		return "vLLM 0.11 or SGLang until September 2026"
	case 8:
		return "vLLM 0.15"
	case 12:
		return "vLLM 0.23"
	}
	return fmt.Sprintf("no known release: %d elements in a store", l.store)
}

// merge is what two batches of one engine show together, and whether b contradicts or adds to l.
func (l layout) merge(b layout) (layout, bool) {
	if b.events == "" && b.batch == l.batch && b.elements == l.elements {
		return l, false
	}
	b.message = b.message.with(l.message)
	if l.events == b.events && l.batch == b.batch && l.elements == b.elements {
		if b.store == 0 {
			b.store = l.store
		}
		b.metadata = b.metadata || l.metadata
		b.stored, b.named = b.stored || l.stored, b.named || l.named
		b.located, b.owned = b.located || l.located, b.owned || l.owned
		b.signed, b.binary = b.signed || l.signed, b.binary || l.binary
		if l.metadata && b.store == 7 { // the element that comes and goes
			b.store = l.store
		}
	}
	return b, b != l
}

// sniff reads the layout of a payload that gateway/events could read, which bounds its depth and lengths.
// An error only means that less is known.
func sniff(payload []byte) layout {
	var l layout
	d := msgpack.NewDecoder(bytes.NewReader(payload))
	_ = l.readBatch(d)
	return l
}

func (l *layout) readBatch(d *msgpack.Decoder) error {
	c, err := d.PeekCode()
	if err != nil {
		return err
	}
	if !isMap(c) {
		l.batch = formArray
		if l.elements, err = d.DecodeArrayLen(); err != nil {
			return err
		}
		if err := d.Skip(); err != nil {
			return err
		}
		return l.readEvents(d)
	}
	l.batch = formMap
	if l.elements, err = d.DecodeMapLen(); err != nil {
		return err
	}
	return eachKey(d, l.elements, func(key string) error {
		if key == "events" {
			return l.readEvents(d)
		}
		return d.Skip()
	})
}

func eachKey(d *msgpack.Decoder, n int, value func(key string) error) error {
	for range n {
		key, err := d.DecodeString()
		if err != nil {
			return err
		}
		if err := value(key); err != nil {
			return err
		}
	}
	return nil
}

func (l *layout) readEvents(d *msgpack.Decoder) error {
	n, err := d.DecodeArrayLen()
	if err != nil {
		return err
	}
	for range n {
		c, err := d.PeekCode()
		if err != nil {
			return err
		}
		switch {
		case isMap(c):
			err = l.readMap(d)
		case isArray(c):
			err = l.readArray(d)
		default:
			err = d.Skip()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *layout) shaped(form string) {
	if l.events != "" && l.events != form {
		form = formMixed
	}
	l.events = form
}

// readArray reads [tag, block hashes, ...].
func (l *layout) readArray(d *msgpack.Decoder) error {
	l.shaped(formArray)
	n, err := d.DecodeArrayLen()
	if err != nil || n < 1 {
		return err
	}
	tag, err := d.DecodeString()
	if err != nil {
		return err
	}
	stored := tag == "BlockStored"
	if stored {
		l.store = n
	}
	for i := 1; i < n; i++ {
		c, err := d.PeekCode()
		if err != nil {
			return err
		}
		l.metadata = l.metadata || stored && i == n-1 && isMap(c)
		if i == 1 {
			err = l.readHashes(d)
		} else {
			err = d.Skip()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readMap reads {"type": ..., ...}.
func (l *layout) readMap(d *msgpack.Decoder) error {
	l.shaped(formMap)
	n, err := d.DecodeMapLen()
	if err != nil {
		return err
	}
	stored := false
	return eachKey(d, n, func(key string) error {
		switch key {
		case "type":
			tag, err := d.DecodeString()
			stored = tag == "BlockStored"
			l.stored = l.stored || stored
			return err
		case "block_hashes":
			return l.readHashes(d)
		case "lora_name":
			l.named = l.named || stored
		case "locality":
			l.located = true
		case "ownership":
			l.owned = true
		}
		return d.Skip()
	})
}

func (l *layout) readHashes(d *msgpack.Decoder) error {
	c, err := d.PeekCode()
	if err != nil {
		return err
	}
	if !isArray(c) {
		return d.Skip()
	}
	n, err := d.DecodeArrayLen()
	for ; n > 0 && err == nil; n-- {
		if c, err = d.PeekCode(); err == nil {
			l.signed = l.signed || c >= msgpcode.NegFixedNumLow || c >= msgpcode.Int8 && c <= msgpcode.Int64
			l.binary = l.binary || msgpcode.IsBin(c)
			err = d.Skip()
		}
	}
	return err
}

func isMap(c byte) bool {
	return msgpcode.IsFixedMap(c) || c == msgpcode.Map16 || c == msgpcode.Map32
}

func isArray(c byte) bool {
	return msgpcode.IsFixedArray(c) || c == msgpcode.Array16 || c == msgpcode.Array32
}
