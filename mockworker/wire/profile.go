package wire

import (
	"fmt"
	"strings"

	"fleetdrill/mockworker/engine"
)

// profile describes one engine version's events.
type profile struct {
	name string
	// stored, removed and cleared are the fields behind the type, in order.
	stored, removed, cleared []field
	// replayTopic says that replay replies carry the topic frame.
	replayTopic bool
}

// field is one key of an event map.
type field struct {
	key string
	// has says whether the field is on the wire; nil means always.
	has func(*engine.Event) bool
	put func(*Encoder, *engine.Event)
}

// profiles is every profile there is, oldest first.
func profiles() []profile {
	return []profile{
		{
			// Map events since v0.24 (vLLM pull request 42892), replay replies without topic until v0.26.
			name: "vllm-0.25",
			stored: []field{
				{key: "block_hashes", put: (*Encoder).putHashes},
				{key: "parent_block_hash", put: (*Encoder).putParent},
				{key: "token_ids", put: (*Encoder).putTokens},
				{key: "block_size", put: (*Encoder).putBlockSize},
				{key: "lora_id", put: (*Encoder).putLoRAID},
				{key: "medium", put: (*Encoder).putMedium},
				{key: "lora_name", put: (*Encoder).putLoRAName},
				{key: "extra_keys", has: hasExtraKeys, put: (*Encoder).putExtraKeys},
				{key: "group_idx", has: hasGroup, put: (*Encoder).putGroup},
				{key: "kv_cache_spec_kind", has: hasSpecKind, put: (*Encoder).putSpecKind},
				{key: "kv_cache_spec_sliding_window", has: hasSpecWindow, put: (*Encoder).putSpecWindow},
			},
			removed: []field{
				{key: "block_hashes", put: (*Encoder).putHashes},
				{key: "medium", put: (*Encoder).putMedium},
				{key: "group_idx", has: hasGroup, put: (*Encoder).putGroup},
			},
		},
	}
}

func hasExtraKeys(ev *engine.Event) bool  { return len(ev.ExtraKeys) > 0 }
func hasGroup(ev *engine.Event) bool      { return ev.Group != engine.NoGroup }
func hasSpecKind(ev *engine.Event) bool   { return ev.SpecKind != "" }
func hasSpecWindow(ev *engine.Event) bool { return ev.SpecWindow != 0 }

// lookup finds a profile by name.
func lookup(name string) (profile, error) {
	all := profiles()
	names := make([]string, len(all))
	for i, p := range all {
		if p.name == name {
			return p, nil
		}
		names[i] = p.name
	}
	return profile{}, fmt.Errorf("unknown wire profile %q: have %s", name, strings.Join(names, ", "))
}
