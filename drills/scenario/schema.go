package scenario

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
)

// Schema is the JSON Schema (draft 2020-12) of a scenario file, for editors: completion, hover texts and
// early errors. It is printed from the tables that the parser reads by. It says less than the parser, which
// also knows series, marks and their order; what the parser takes, it takes.
func Schema() ([]byte, error) {
	defs := map[string]any{"step": schemaStep()}
	for _, s := range append(shapes(), faultShapes()...) {
		defs[s.name] = s.schema()
	}
	root := map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"title":   "fleetdrill scenario",
		"$ref":    "#/$defs/" + scenarioShape.name,
		"$defs":   defs,
	}
	out, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("printing the schema: %w", err)
	}
	return append(out, '\n'), nil
}

// faultShapes are the mappings of the faults that can be injected, each with that of its confirm.
func faultShapes() []*shape {
	var out []*shape
	for _, k := range kinds {
		if k.supported {
			s := k.shape()
			out = append(out, s, s.key("confirm").value.of)
		}
	}
	return out
}

// schemaStep is a wait or a fault of some kind.
func schemaStep() any {
	one := []any{ref(waitShape)}
	for _, k := range kinds {
		if k.supported {
			one = append(one, ref(k.shape()))
		}
	}
	return map[string]any{"oneOf": one}
}

func ref(s *shape) any { return map[string]any{"$ref": "#/$defs/" + s.name} }

// schema is the schema of a mapping. Keys that are not supported yet are left out, so that an editor does
// not offer what the parser refuses.
func (s *shape) schema() any {
	properties, required := map[string]any{}, []string{}
	for _, k := range s.keys {
		if k.soon {
			continue
		}
		properties[k.name] = k.schema()
		if k.required {
			required = append(required, k.name)
		}
	}
	out := map[string]any{"type": "object", "description": s.doc, "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		out["required"] = required
	}
	if forms := s.schemaForms(); forms != nil {
		out["oneOf"] = forms
	}
	if len(s.needs) > 0 {
		out["anyOf"] = append(requiring(s.replacements()), map[string]any{"required": s.needs})
	}
	return out
}

// schemaForms lists the sets of keys of which exactly one must be there: each excludes what only the others
// have.
func (s *shape) schemaForms() []any {
	var all []string
	for _, f := range s.forms {
		all = append(all, f...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	var out []any
	for _, f := range s.forms {
		form := map[string]any{"required": f}
		if not := requiring(slices.DeleteFunc(slices.Clone(all), func(k string) bool { return slices.Contains(f, k) })); len(not) > 0 {
			form["not"] = map[string]any{"anyOf": not}
		}
		out = append(out, form)
	}
	return out
}

// requiring is one schema per key, which holds when the key is there.
func requiring(keys []string) []any {
	var out []any
	for _, k := range keys {
		out = append(out, map[string]any{"required": []string{k}})
	}
	return out
}

// schema is the schema of a key's value, with its doc and default.
func (k key) schema() any {
	v := k.value.schema()
	out := map[string]any{"description": k.doc}
	for name, x := range v {
		out[name] = x
	}
	if k.def != "" {
		out["default"] = k.value.literal(k.def)
	}
	return out
}

// literal is a default as JSON has it.
func (v value) literal(def string) any {
	switch v.form {
	case formWhole:
		return wholeOf(def)
	case formBool:
		return def == "true"
	case formNumber, formPart:
		return numberOf(def)
	}
	return def
}

// schema is the schema of a form.
func (v value) schema() map[string]any {
	text := map[string]any{"type": "string"}
	scalar := map[string]any{"type": []string{"string", "number", "boolean"}}
	switch v.form {
	case formText:
		return scalar
	case formTexts:
		return oneOrMore(scalar)
	case formID:
		return pattern(reID)
	case formVersion:
		return map[string]any{"const": wholeOf(version)}
	case formWhole:
		return map[string]any{"type": "integer", "minimum": v.min, "maximum": v.max}
	case formBool:
		return map[string]any{"type": "boolean"}
	case formDuration:
		return pattern(reDuration)
	case formRate:
		return pattern(reRate)
	case formNumber:
		return map[string]any{"type": "number", "minimum": v.low, "maximum": v.high}
	case formPart:
		return either(pattern(reShare), map[string]any{"type": "number", "exclusiveMinimum": 0, "maximum": 1})
	case formShare:
		return either(pattern(reShare), map[string]any{"type": "number", "minimum": 0, "maximum": 1})
	case formRange:
		return either(pattern(reRange), map[string]any{"type": "integer", "minimum": 0})
	case formSeed:
		return either(map[string]any{"const": runSeed}, map[string]any{"type": "integer", "minimum": 0})
	case formWord:
		return map[string]any{"enum": v.words}
	case formWords, formNames, formWordList:
		return oneOrMore(map[string]any{"enum": v.words})
	case formWorker:
		return pattern(reWorker)
	case formMapping:
		return map[string]any{"$ref": "#/$defs/" + v.of.name}
	case formList:
		return map[string]any{"type": "array", "items": ref(v.of), "maxItems": maxList}
	case formPredicates:
		return map[string]any{"type": "array", "items": text, "maxItems": maxList}
	case formSteps:
		return map[string]any{"type": "array", "items": map[string]any{"$ref": "#/$defs/step"}, "maxItems": maxList}
	case formEither:
		return either(value{form: v.alt}.schema(), ref(v.of))
	}
	return text // marks and predicates, whose grammar a pattern cannot say
}

func pattern(re *regexp.Regexp) map[string]any {
	return map[string]any{"type": "string", "pattern": re.String()}
}

func either(xs ...any) map[string]any { return map[string]any{"anyOf": xs} }

func oneOrMore(x any) map[string]any {
	return either(x, map[string]any{"type": "array", "items": x})
}
