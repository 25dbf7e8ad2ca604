package drive

import (
	"fmt"
	"slices"

	"fleetdrill/gateway/index"
	"fleetdrill/gateway/index/kinds"
)

// Null is the name of the index that does nothing: its figures are the harness's own ceiling.
const Null = "null"

// Make makes an index by name: one of package kinds, or Null.
func Make(name string) (index.Index, error) {
	if name == Null {
		return null{}, nil
	}
	return kinds.New(name)
}

// Contestants are the indexes that a bench compares unless told otherwise, as far as this build has them.
func Contestants() []string {
	return slices.DeleteFunc([]string{"chain", "crtc", "positional", "maptree"}, func(name string) bool {
		_, err := kinds.New(name)
		return err != nil
	})
}

// CheckNames says which index is unknown or given twice.
func CheckNames(names []string) error {
	for i, name := range names {
		if _, err := Make(name); err != nil {
			return fmt.Errorf("%w, %s", err, Null)
		}
		if slices.Contains(names[:i], name) {
			return fmt.Errorf("index %s is given twice", name)
		}
	}
	if len(names) == 0 {
		return fmt.Errorf("no index is named: want some of %s, %s", kinds.Help, Null)
	}
	return nil
}

// null takes every event and knows nothing.
type null struct{}

func (null) Store(_ index.Holder, _ uint64, _ bool, hashes, _ []uint64) index.StoreResult {
	return index.StoreResult{Stored: len(hashes)}
}
func (null) Remove(_ index.Holder, hashes []uint64) (removed, unknown int) { return len(hashes), 0 }
func (null) Clear(index.Holder)                                            {}
func (null) Drop(index.Holder)                                             {}
func (null) Lookup(_ []uint64, dst index.Scores) index.Scores              { return dst[:0] }
func (null) Holds(index.Holder, uint64) bool                               { return false }
func (null) Count(index.Holder) int                                        { return 0 }
func (null) Stats() index.Stats                                            { return index.Stats{} }
func (null) Each(index.Holder, func(index.Membership) bool)                {}
