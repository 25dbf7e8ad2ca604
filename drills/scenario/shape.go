package scenario

import (
	"slices"
	"time"
)

// shape is a mapping of the language: its keys in the order of the documentation. The decoder reads by it,
// and the JSON Schema and the reference are printed from it, so that they cannot say different things.
type shape struct {
	// name is its name in the schema, what how messages call it.
	name, what string
	doc        string
	keys       []key
	// forms lists the sets of keys of which exactly one must be there, beside the required ones.
	forms [][]string
	// needs lists keys that must be there unless those of unless are.
	needs, unless []string
	// refused are keys that a person may expect here, and why they are not.
	refused map[string]string
}

// key is one key of a mapping.
type key struct {
	name     string
	value    value
	required bool
	// soon marks a key that the language has and this version does not.
	soon bool
	// def is what a missing key means, as it would be written; empty for nothing. A default that depends
	// on something else is said in the doc.
	def string
	doc string
}

// form is what may stand as a value.
type form int

const (
	formText       form = iota // any scalar
	formTexts                  // a list of scalars; a lone one is a list of one
	formID                     // a name that marks are built from
	formWhole                  // a whole number in [min, max]
	formBool                   // true or false
	formDuration               // at least least, and at most most unless that is 0
	formNumber                 // a number in [low, high]
	formRate                   // N/s or N/min
	formShare                  // 50% or 0.5
	formPart                   // a share above 0
	formRange                  // A..B or one number
	formSeed                   // $run.seed or a number
	formVersion                // 1
	formMark                   // a mark expression
	formMarks                  // a window, mark..mark
	formPredicate              // a condition
	formWord                   // one of words
	formWords                  // one of words, or a list of one of them
	formWordList               // one of words, or a list of any of them
	formWorker                 // gateway or a worker, checked against the fleet
	formMapping                // of
	formList                   // a list of of
	formNames                  // a name out of words, or a list of them, checked later
	formPredicates             // a list of conditions
	formEither                 // a scalar of the form alt, or the mapping of
	formSteps                  // a list of faults and waits
)

// value is a form with its limits.
type value struct {
	form        form
	min, max    int
	low, high   float64
	least, most time.Duration
	words, soon []string
	of          *shape
	alt         form
}

// known lists the keys that can be used, later those that cannot yet.
func (s *shape) known() []string { return s.names(false) }

func (s *shape) later() []string { return s.names(true) }

func (s *shape) names(soon bool) []string {
	var out []string
	for _, k := range s.keys {
		if k.soon == soon {
			out = append(out, k.name)
		}
	}
	return out
}

// replacements are the keys of unless that can be used.
func (s *shape) replacements() []string {
	return slices.DeleteFunc(slices.Clone(s.unless), func(name string) bool { return s.key(name).soon })
}

// key looks a key up; a getter that asks for one that the table does not have reads nothing.
func (s *shape) key(name string) key {
	i := slices.IndexFunc(s.keys, func(k key) bool { return k.name == name })
	if i < 0 {
		return key{}
	}
	return s.keys[i]
}
