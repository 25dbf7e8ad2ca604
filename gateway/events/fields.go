package events

// field is one field of an event, whatever its layout.
type field uint8

// fields is a set of them.
type fields uint32

const (
	unknownField field = iota
	hashesField
	parentField
	tokensField
	blockSizeField
	loraIDField
	mediumField
	loraNameField // of an array: or SGLang's metadata map, which stands in the same slot
	extraKeysField
	groupField
	specKindField
	windowField
	localityField
	ownerField
	saltField
)

// required lists what an event cannot be understood without. The newest wires omit defaults, never these.
var required = [...]fields{
	Stored:  1<<hashesField | 1<<parentField | 1<<tokensField | 1<<blockSizeField,
	Removed: 1 << hashesField,
	Cleared: 0,
}

// arraySlots are the fields of an array event behind its tag, in order. Versions only ever added to the
// end, so a shorter array is an older engine's.
var arraySlots = [...][]field{
	Stored: {hashesField, parentField, tokensField, blockSizeField, loraIDField, mediumField, loraNameField,
		extraKeysField, groupField, specKindField, windowField, localityField, ownerField},
	Removed: {hashesField, mediumField, groupField, localityField, ownerField},
	Cleared: {ownerField},
}

// fieldOf is the field a map key names.
func fieldOf(key []byte) field {
	switch string(key) {
	case "block_hashes":
		return hashesField
	case "parent_block_hash":
		return parentField
	case "token_ids":
		return tokensField
	case "block_size":
		return blockSizeField
	case "lora_id":
		return loraIDField
	case "medium":
		return mediumField
	case "lora_name":
		return loraNameField
	case "extra_keys":
		return extraKeysField
	case "group_idx":
		return groupField
	case "kv_cache_spec_kind":
		return specKindField
	case "kv_cache_spec_sliding_window":
		return windowField
	case "locality":
		return localityField
	case "ownership":
		return ownerField
	case "cache_salt":
		return saltField
	}
	return unknownField
}

// field reads one field's value into e.
func (b *Batch) field(r *reader, e *Event, f field) error {
	switch f {
	case hashesField:
		return b.readHashes(r, e)
	case parentField:
		return e.readParent(r)
	case tokensField:
		return b.readTokens(r, e)
	case blockSizeField:
		return e.readBlockSize(r)
	case loraIDField:
		return readInt(r, &e.LoRAID)
	case mediumField:
		return readText(r, &e.Medium)
	case loraNameField:
		if c, err := r.peek(); err == nil && (c&0xf0 == 0x80 || c == 0xde || c == 0xdf) {
			return e.readMetadata(r)
		}
		return readText(r, &e.LoRAName)
	case extraKeysField:
		return b.readExtraKeys(r, e)
	case groupField:
		e.HasGroup = !r.null()
		if !e.HasGroup {
			return nil
		}
		return readInt(r, &e.Group)
	case specKindField:
		return readText(r, &e.SpecKind)
	case windowField:
		return readInt(r, &e.Window)
	case localityField:
		return readText(r, &e.Locality)
	case ownerField:
		return readText(r, &e.Owner)
	case saltField:
		return readText(r, &e.Salt)
	}
	return r.skip(maxDepth)
}

func (e *Event) readParent(r *reader) (err error) {
	if e.HasParent = !r.null(); e.HasParent {
		e.Parent, err = r.hash()
	}
	return err
}

// readBlockSize reads the size in tokens. A value outside 0..2^20 is kept as 0, which no span fits.
func (e *Event) readBlockSize(r *reader) error {
	v, err := r.integer()
	if err == nil && v > 0 && v <= 1<<20 {
		e.BlockSize = int(v)
	}
	return err
}
