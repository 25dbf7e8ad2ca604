package corpus

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/zeebo/xxh3"
)

func built(t testing.TB) *Corpus {
	t.Helper()
	c, err := Build(builtIn(t, 40), small())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// one is a corpus of one operation of each kind.
func one() *Corpus {
	return &Corpus{
		Header: Header{Trace: "t", BlockSize: 128, WindowNs: 100, Duplication: 2, LengthFactor: 4, WorkerDuplication: 1, Workers: 3, Resident: 0,
			Totals: Totals{Requests: 1, StoredEvents: 1, RemovedEvents: 1, ClearedEvents: 1, RequestBlocks: 1, StoredBlocks: 2, RemovedBlocks: 1}},
		Queries: []uint64{0x11}, Hashes: []uint64{0x21, 0x22}, Contents: []uint64{0x31, 0x32}, Removals: []uint64{0x21},
		Ops: []Op{
			{Deadline: 1, Length: 1, Worker: 2, Kind: Query},
			{Deadline: 1, Length: 2, Worker: 2, Rank: 1, Event: 9, Parent: 0x77, HasParent: 1, Position: 5, HasPosition: 1, Kind: Stored},
			{Deadline: 2, Length: 1, Worker: 2, Rank: 1, Event: 10, Kind: Removed},
			{Deadline: 3, Worker: 2, Rank: 1, Event: 11, Kind: Cleared},
		},
	}
}

// equal ignores how a corpus is mapped.
func equal(t testing.TB, want, got *Corpus) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Corpus{}), cmp.AllowUnexported(Op{}), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("-want +got\n%s", diff)
	}
}

func TestFilesGiveTheCorpusBack(t *testing.T) {
	for name, c := range map[string]*Corpus{"built": built(t), "one of each": one()} {
		path := filepath.Join(t.TempDir(), "c")
		if err := c.Save(path); err != nil {
			t.Fatal(err)
		}
		got, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, c, got)
		var out bytes.Buffer
		if err := got.WriteSMG(&out); err != nil {
			t.Fatal(err)
		}
		if err := got.Close(); err != nil {
			t.Fatal(err)
		}
		again, err := ReadSMG(&out, math.MaxInt64)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		again.Refused = c.Refused // the public format does not say
		equal(t, c, again)
	}
}

func TestEqualParametersGiveEqualBytes(t *testing.T) {
	var files [2][]byte
	for i := range files {
		path := filepath.Join(t.TempDir(), "c")
		if err := built(t).Save(path); err != nil {
			t.Fatal(err)
		}
		var err error
		if files[i], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(files[0], files[1]) {
		t.Fatal("two builds of the same parameters differ")
	}
	p := small()
	p.Seed++
	other, err := Build(builtIn(t, 40), p)
	if err != nil {
		t.Fatal(err)
	}
	if c := built(t); c.Totals.Requests != other.Totals.Requests || cmp.Equal(c.Ops, other.Ops, cmp.AllowUnexported(Op{})) {
		t.Fatal("the seed decides nothing")
	}
}

// The public layout, byte by byte.
func TestSMGLayout(t *testing.T) {
	var out bytes.Buffer
	if err := one().WriteSMG(&out); err != nil {
		t.Fatal(err)
	}
	word := func(n int) string { return hex.EncodeToString(binary.LittleEndian.AppendUint64(nil, uint64(n))) }
	want := "534d474d434b3031" + "01000000" + "80000000" + word(100) + word(2) + word(4) + word(1) + word(3) +
		word(1) + word(1) + word(1) + word(1) + word(1) + word(2) + word(1) + // totals
		word(1) + "74" +
		word(1) + word(0x11) +
		word(2) + word(0x21) + word(0x31) + word(0x22) + word(0x32) +
		word(1) + word(0x21) +
		word(4) +
		"00000000" + word(1) + word(2) + "00" + word(0) + "01000000" +
		"01000000" + word(1) + word(2) + "01" + "01000000" + word(9) + "01" + word(0x77) + "01" + "05000000" + word(0) + "02000000" +
		"02000000" + word(2) + word(2) + "02" + "01000000" + word(10) + word(0) + "01000000" +
		"03000000" + word(3) + word(2) + "03" + "01000000" + word(11)
	if got := hex.EncodeToString(out.Bytes()); got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}

// What a replay could not use is refused with its reason.
func TestDamagedCorporaAreRefused(t *testing.T) {
	for want, change := range map[string]func(*Corpus){
		"no operation":                  func(c *Corpus) { c.Ops = nil },
		"its window is 0":               func(c *Corpus) { c.WindowNs = 0 },
		"0 workers":                     func(c *Corpus) { c.Workers = 0 },
		"2 engine hashes and 1 content": func(c *Corpus) { c.Contents = c.Contents[:1] },
		"kind 9":                        func(c *Corpus) { c.Ops[0].Kind = 9 },
		"2 items from 1 on, of 2":       func(c *Corpus) { c.Ops[1].Start = 1 },
		"from 18446744073709551615 on":  func(c *Corpus) { c.Ops[1].Start = math.MaxUint64 },
		"worker 3 of 3":                 func(c *Corpus) { c.Ops[0].Worker = 3 },
		"outside the window":            func(c *Corpus) { c.Ops[3].Deadline = 101 },
		"in front of the one before":    func(c *Corpus) { c.Ops[0].Deadline = 2 },
		"its header says":               func(c *Corpus) { c.Totals.Requests++ },
	} {
		c := one()
		change(c)
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	queryBehind := one()
	queryBehind.Ops[0], queryBehind.Ops[1] = queryBehind.Ops[1], queryBehind.Ops[0]
	if queryBehind.Check() == nil {
		t.Error("an event in front of the query of its instant")
	}
}

func TestForeignFilesAreRefused(t *testing.T) {
	var smg bytes.Buffer
	if err := one().WriteSMG(&smg); err != nil {
		t.Fatal(err)
	}
	whole := smg.Bytes()
	for want, b := range map[string][]byte{
		"cut short":                         whole[:len(whole)-1],
		"bytes follow its end":              append(bytes.Clone(whole), 0),
		`it begins with "SMGMCK02"`:         append([]byte("SMGMCK02"), whole[8:]...),
		"version 2 is not known":            patch(whole, 8, 2),
		"bytes: the bound is":               patch(whole, 112, 0xff, 0xff, 0xff),
		"ids must be dense":                 patch(whole, len(whole)-33, 7),
		"longer than this machine has room": whole,
	} {
		limit := int64(1 << 20)
		if strings.HasPrefix(want, "longer") {
			limit = 50
		}
		if _, err := ReadSMG(bytes.NewReader(b), limit); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	path := filepath.Join(t.TempDir(), "c")
	for want, b := range map[string][]byte{"are no corpus": []byte("short"), "not a corpus file": bytes.Repeat([]byte("x"), 100)} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if err := one().Save(filepath.Join(t.TempDir(), "none", "c")); err == nil {
		t.Error("saved into a folder that is not there")
	}
}

func patch(b []byte, at int, with ...byte) []byte {
	b = bytes.Clone(b)
	copy(b[at:], with)
	return b
}

// No bytes make the reader of the public format panic or take memory that the bytes do not have.
func FuzzReadSMG(f *testing.F) {
	var out bytes.Buffer
	if err := one().WriteSMG(&out); err != nil {
		f.Fatal(err)
	}
	f.Add(out.Bytes())
	f.Add(patch(out.Bytes(), 121, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ReadSMG(bytes.NewReader(b), 1<<20)
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := c.WriteSMG(&again); err != nil || !bytes.Equal(again.Bytes(), b) {
			t.Fatalf("it was read and is written otherwise: %v", err)
		}
	})
}

// No bytes, not even under a right checksum, make the reader of cache files panic.
func FuzzParse(f *testing.F) {
	path := filepath.Join(f.TempDir(), "c")
	if err := one().Save(path); err != nil {
		f.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:len(b)-8])
	f.Fuzz(func(t *testing.T, b []byte) {
		aligned := make([]uint64, len(b)/8+1)
		data := unsafe.Slice((*byte)(unsafe.Pointer(&aligned[0])), len(b))
		copy(data, b)
		if len(data) > 16 {
			binary.LittleEndian.PutUint64(data[8:], xxh3.Hash(data[16:]))
		}
		if c, err := parse(data); err == nil {
			for i := range c.Ops {
				switch op := &c.Ops[i]; op.Kind {
				case Query:
					c.Chain(op)
				case Stored:
					c.Blocks(op)
				case Removed:
					c.Gone(op)
				}
			}
		}
	})
}
