package blockhash

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"pgregory.net/rapid"

	"fleetdrill/internal/shared"
)

// vector is a line of vllm_block_hashes.jsonl.
type vector struct {
	Algo      string   `json:"algo"`
	Seed      string   `json:"seed"`
	NoneHash  string   `json:"none_hash"`
	BlockSize int      `json:"block_size"`
	Tokens    []uint32 `json:"tokens"`
	LoRA      string   `json:"lora_name"`
	Salt      string   `json:"cache_salt"`
	Blocks    []struct {
		Digest   string `json:"digest"`
		EventInt string `json:"event_int"`
	} `json:"blocks"`
}

func TestGoldenHashes(t *testing.T) {
	rows := 0
	for line := range shared.Lines(t, "vectors/vllm_block_hashes.jsonl") {
		var v vector
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatal(err)
		}
		v.check(t)
		rows++
	}
	if rows == 0 {
		t.Error("no golden row")
	}
}

func (v vector) check(t *testing.T) {
	h, err := New(v.Algo, v.Seed)
	if err != nil {
		t.Fatal(err)
	}
	if got := h.NoneHash().String(); got != v.NoneHash {
		t.Errorf("%s, seed %q: NONE_HASH %s, want %s", v.Algo, v.Seed, got, v.NoneHash)
	}
	parent, extra := h.NoneHash(), Extra{LoRAName: v.LoRA, CacheSalt: v.Salt}
	for i, want := range v.Blocks {
		parent = h.Next(parent, v.Tokens[i*v.BlockSize:(i+1)*v.BlockSize], extra)
		extra.CacheSalt = ""
		if got := parent.String(); got != want.Digest {
			t.Errorf("%s, seed %q, blocks of %d, block %d: %s, want %s", v.Algo, v.Seed, v.BlockSize, i, got, want.Digest)
		}
		if got := strconv.FormatUint(parent.EventInt(), 10); got != want.EventInt {
			t.Errorf("%s, block %d: event integer %s, want %s", v.Algo, i, got, want.EventInt)
		}
	}
}

// TestCBORAgainstReference holds the CBOR subset to an independent encoder's canonical form.
func TestCBORAgainstReference(t *testing.T) {
	canonical, err := cbor.CanonicalEncOptions().EncMode()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		parent := rapid.SliceOfN(rapid.Byte(), 8, 32).Draw(t, "parent")
		tokens := rapid.SliceOf(anyToken()).Draw(t, "tokens")
		extra := anyExtra().Draw(t, "extra")
		want, err := canonical.Marshal([]any{parent, tokens, extra.list()})
		if err != nil {
			t.Fatal(err)
		}
		if got := appendCBORBlock(nil, parent, tokens, extra); string(got) != string(want) {
			t.Fatalf("got  %x\nwant %x", got, want)
		}
	})
}

// list is the extra keys as a reference encoder takes them: nil or a list of texts.
func (x Extra) list() any {
	var l []string
	for _, s := range []string{x.LoRAName, x.CacheSalt} {
		if s != "" {
			l = append(l, s)
		}
	}
	if l == nil {
		return nil
	}
	return l
}

// anyToken draws ids around every width of both formats.
func anyToken() *rapid.Generator[uint32] {
	return rapid.OneOf(rapid.Uint32(), rapid.Uint32Max(300), rapid.Uint32Range(65_000, 66_000))
}

func anyExtra() *rapid.Generator[Extra] {
	return rapid.Custom(func(t *rapid.T) Extra {
		return Extra{LoRAName: rapid.StringN(-1, 300, -1).Draw(t, "lora"), CacheSalt: rapid.String().Draw(t, "salt")}
	})
}

// TestPickleCorners are the corners no golden row reaches; digests by CPython 3.11.
func TestPickleCorners(t *testing.T) {
	h, err := New("sha256", "0")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		tokens []uint32
		extra  Extra
		want   string
	}{
		{"no token", nil, Extra{}, "3e9c002a099c54156e3b037ae079072d2143cbb3fe4e4ac03a760b5435b1e618"},
		{"beyond int32", []uint32{1 << 31}, Extra{}, "7475d5d7fdd00958174016f335fa623c1607deef27b00e38c003f07e23c4a348"},
		{"largest of 32 and 31 bits", []uint32{1<<32 - 1, 1<<31 - 1}, Extra{}, "6d56012f2fc89765204b0e91430883e2232877499b1064e3ce059f09e537ae4c"},
		{"tuple of three", []uint32{1, 2, 3}, Extra{}, "bb60f31e9f6a56c13d968d705160c17b5688adc51512c3e45ed537512280c0bd"},
		{"long name", []uint32{1}, Extra{LoRAName: strings.Repeat("l", 300), CacheSalt: "salt"}, "3e30b5dbbe012c146f46044fc50f8001aca41e8c20b31fe7af6125281a96cf10"},
	} {
		if got := h.Next(h.NoneHash(), c.tokens, c.extra).String(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	for seed, want := range map[string]string{
		"":                       "3279c4b947f331d055c47442171c9ea17712596bd7fe094c31d4a5d432b42d68",
		strings.Repeat("s", 256): "ea4333e762a3ec9e34a8f6f89b3789fcdd1c056a956a629c94af3b73f5819e3d",
	} {
		if got := sha256.Sum256(appendPickleSeed(nil, seed)); hex.EncodeToString(got[:]) != want {
			t.Errorf("seed of %d bytes: %x, want %s", len(seed), got, want)
		}
	}
}

// TestInputBound keeps the small buffer big enough: a bound that is too low would make a hash allocate.
func TestInputBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parent := make([]byte, maxDigest)
		tokens := rapid.SliceOf(anyToken()).Draw(t, "tokens")
		extra := anyExtra().Draw(t, "extra")
		bound := inputBound(len(tokens), extra)
		if n := len(appendCBORBlock(nil, parent, tokens, extra)); n > bound {
			t.Fatalf("CBOR takes %d bytes, bound %d", n, bound)
		}
		// Ids above a signed 32-bit integer take 7 bytes in pickle and do not exist in any vocabulary.
		for i := range tokens {
			tokens[i] &= 0x7fffffff
		}
		if n := len(appendPickleBlock(nil, parent, tokens, extra)); n > bound {
			t.Fatalf("pickle takes %d bytes, bound %d", n, bound)
		}
	})
}

func TestNextDoesNotAllocate(t *testing.T) {
	for _, algo := range []string{"sha256", "sha256_cbor", "xxhash", "xxhash_cbor"} {
		h, err := New(algo, DefaultSeed)
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{1, 16, 128, 256} {
			block := make([]uint32, size)
			for i := range block {
				block[i] = 151_935
			}
			digest := h.NoneHash()
			if n := testing.AllocsPerRun(50, func() { digest = h.Next(digest, block, Extra{LoRAName: "adapter"}) }); n != 0 {
				t.Errorf("%s: %v allocations for a block of %d", algo, n, size)
			}
		}
	}
}

func TestUnknownAlgorithm(t *testing.T) {
	_, err := New("builtin", "0")
	if err == nil || !strings.Contains(err.Error(), `"builtin"`) || !strings.Contains(err.Error(), "xxhash_cbor") {
		t.Errorf("error is %v, must name the algorithm and list the known ones", err)
	}
}

func TestIntDigest(t *testing.T) {
	d := FromInt(0x0102030405060708)
	if !d.IsInt() || d.EventInt() != 0x0102030405060708 || d.String() != "0102030405060708" {
		t.Errorf("digest of an integer is %v, event integer %x", d, d.EventInt())
	}
	if got := FromBytes(d.Bytes()); got != d {
		t.Errorf("through bytes it becomes %v", got)
	}
	if got := (Digest{}).EventInt(); got != 0 {
		t.Errorf("no hash has event integer %d", got)
	}
}

// BenchmarkNext hashes one block of 16 tokens of a large vocabulary.
func BenchmarkNext(b *testing.B) {
	block := make([]uint32, 16)
	for i := range block {
		block[i] = uint32(i*7919 + 100_000)
	}
	for _, algo := range []string{"sha256", "sha256_cbor", "xxhash", "xxhash_cbor"} {
		b.Run(algo, func(b *testing.B) {
			h, err := New(algo, DefaultSeed)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			digest := h.NoneHash()
			for b.Loop() {
				digest = h.Next(digest, block, Extra{})
			}
		})
	}
}
