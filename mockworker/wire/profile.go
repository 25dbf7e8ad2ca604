package wire

import (
	"fmt"
	"slices"
	"strings"

	"fleetdrill/mockworker/engine"
)

// hashForm says which forms of a block hash an engine version has.
type hashForm uint8

const (
	// anyHash is an unsigned integer, or all bytes with VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0.
	anyHash hashForm = iota
	// unsignedHash is an unsigned integer: vLLM before 0.10.2 had no byte hashes.
	unsignedHash
	// signedHash is a signed integer, SGLang's int64.
	signedHash
)

// profile describes one engine version's events.
type profile struct {
	name string
	// stored and removed are the fields behind the type, in order; cleared events have none.
	stored, removed []field
	// mapped events are maps that begin with the key "type"; others are arrays that begin with the type.
	mapped bool
	// ranked batches end with the rank.
	ranked bool
	hashes hashForm
	// replayTopic says that replay replies carry the topic frame.
	replayTopic bool
}

// field is one field of an event.
type field struct {
	// key is its name in a map.
	key string
	// has says whether the field differs from its default; nil means that it has none. A default is left
	// out of a map and is nil in an array, which no version shortens.
	has func(*engine.Event) bool
	put func(*Encoder, *engine.Event)
	// extra is a field at an array's end that is not there at all while it has its default.
	extra bool
}

// profiles is every profile there is, oldest first. Versions only ever added fields to the end, so each
// one is the one before and its additions.
func profiles() []profile {
	hashes := field{key: "block_hashes", put: (*Encoder).putHashes}
	medium := field{key: "medium", put: (*Encoder).putMedium}
	group := field{key: "group_idx", has: hasGroup, put: (*Encoder).putGroup}
	locality := field{key: "locality", has: hasLocality, put: (*Encoder).putLocality}
	ownership := field{key: "ownership", has: hasOwnership, put: (*Encoder).putOwnership}
	session := field{key: "session_id", has: hasSession, put: (*Encoder).putSession}

	stored9 := []field{
		hashes,
		{key: "parent_block_hash", put: (*Encoder).putParent},
		{key: "token_ids", put: (*Encoder).putTokens},
		{key: "block_size", put: (*Encoder).putBlockSize},
		{key: "lora_id", put: (*Encoder).putLoRAID},
	}
	removed9 := []field{hashes}
	stored11, removed11 := with(stored9, medium), with(removed9, medium)
	stored15 := with(stored11, field{key: "lora_name", put: (*Encoder).putLoRAName})
	stored23 := with(stored15,
		field{key: "extra_keys", has: hasExtraKeys, put: (*Encoder).putExtraKeys},
		group,
		field{key: "kv_cache_spec_kind", has: hasSpecKind, put: (*Encoder).putSpecKind},
		field{key: "kv_cache_spec_sliding_window", has: hasSpecWindow, put: (*Encoder).putSpecWindow})
	removed23 := with(removed11, group)
	stored28, removed28 := with(stored23, locality), with(removed23, locality)

	// SGLang names no adapter: it keeps vLLM's field and always sends nil.
	storedSGLang := with(stored9[:4], field{key: "lora_id", put: (*Encoder).putNil}, medium)
	return []profile{
		{name: "vllm-0.9", stored: stored9, removed: removed9, hashes: unsignedHash},
		// The rank came with data parallelism in 0.9.1, the medium about 0.10.1 (pull request 19737).
		{name: "vllm-0.11", stored: stored11, removed: removed11, ranked: true},
		{name: "vllm-0.15", stored: stored15, removed: removed11, ranked: true},
		{name: "vllm-0.23", stored: stored23, removed: removed23, ranked: true},
		// Map events since 0.24 (pull request 42892), replay replies without topic until 0.26 (45177).
		{name: "vllm-0.25", stored: stored23, removed: removed23, mapped: true, ranked: true},
		{name: "vllm-0.28", stored: stored28, removed: removed28, mapped: true, ranked: true, replayTopic: true},
		{name: "vllm-0.32", stored: with(stored28, ownership, session), removed: with(removed28, ownership),
			mapped: true, ranked: true, replayTopic: true},
		// SGLang turned to maps in September 2026 (pull request 37482); its replies still have no topic.
		{name: "sglang-array", stored: with(storedSGLang, field{has: hasSalt, put: (*Encoder).putMetadata, extra: true}),
			removed: removed11, ranked: true, hashes: signedHash},
		{name: "sglang-map", stored: with(storedSGLang, field{key: "cache_salt", has: hasSalt, put: (*Encoder).putSalt}, session),
			removed: removed11, mapped: true, ranked: true, hashes: signedHash},
	}
}

// with is a list of its own with more fields at its end.
func with(fields []field, more ...field) []field { return slices.Concat(fields, more) }

func hasExtraKeys(ev *engine.Event) bool  { return len(ev.ExtraKeys) > 0 }
func hasGroup(ev *engine.Event) bool      { return ev.Group != engine.NoGroup }
func hasSpecKind(ev *engine.Event) bool   { return ev.SpecKind != "" }
func hasSpecWindow(ev *engine.Event) bool { return ev.SpecWindow != 0 }
func hasLocality(ev *engine.Event) bool   { return ev.Locality != "" }
func hasOwnership(ev *engine.Event) bool  { return ev.Ownership != "" }
func hasSession(ev *engine.Event) bool    { return ev.SessionID != "" }
func hasSalt(ev *engine.Event) bool       { return ev.CacheSalt != "" }

// IsSGLang says whether a profile is SGLang's, whose hashes are its own.
func IsSGLang(name string) bool { return strings.HasPrefix(name, "sglang-") }

// HasGroups says whether a profile's events tell the cache group of a block.
func HasGroups(name string) bool {
	p, err := lookup(name)
	return err == nil && slices.ContainsFunc(p.removed, func(f field) bool { return f.key == "group_idx" })
}

// Names are the names of all profiles, oldest first, SGLang's last.
func Names() []string {
	var names []string
	for _, p := range profiles() {
		names = append(names, p.name)
	}
	return names
}

// lookup finds a profile by name.
func lookup(name string) (profile, error) {
	for _, p := range profiles() {
		if p.name == name {
			return p, nil
		}
	}
	return profile{}, fmt.Errorf("unknown wire profile %q: have %s", name, strings.Join(Names(), ", "))
}
