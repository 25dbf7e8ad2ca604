package badjson

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestError(t *testing.T) {
	type inner struct {
		X *int     `json:"x"`
		L []string `json:"l"`
	}
	type body struct {
		N int             `json:"n"`
		U []uint32        `json:"u"`
		B bool            `json:"b"`
		S *string         `json:"s"`
		F float64         `json:"f"`
		I inner           `json:"i"`
		M map[string]bool `json:"m"`
	}
	for text, want := range map[string]string{
		`[]`:               "it is a list, must be an object",
		`"x"`:              "it is a string, must be an object",
		`7`:                "it is a number, must be an object",
		`{"n": "x"}`:       "n is a string, must be a whole number",
		`{"n": 1.5}`:       "n is a number 1.5, must be a whole number",
		`{"u": 7}`:         "u is a number, must be a list",
		`{"u": [-1]}`:      "u is a number -1, must be a whole number from 0",
		`{"b": {}}`:        "b is an object, must be true or false",
		`{"s": true}`:      "s is true or false, must be a string",
		`{"f": "1"}`:       "f is a string, must be a number",
		`{"i": {"x": {}}}`: "i.x is an object, must be a whole number",
		`{"i": {"l": {}}}`: "i.l is an object, must be a list",
		`{"m": []}`:        "m is a list, must be an object",
		`{"z": 1}`:         `unknown field "z"`,
		``:                 "nothing is there",
		`{"n"`:             "unexpected EOF",
		`{"n": 1,}`:        "invalid character '}' looking for beginning of object key string",
	} {
		dec := json.NewDecoder(strings.NewReader(text))
		dec.DisallowUnknownFields()
		err := dec.Decode(&body{})
		got := Error(err)
		if got == nil || got.Error() != want {
			t.Errorf("%s: %v, want %s", text, got, want)
		}
		if !errors.Is(got, err) {
			t.Errorf("%s: the error itself is lost", text)
		}
	}
	if Error(nil) != nil {
		t.Error("an error out of none")
	}
	if got := Field(json.Unmarshal([]byte(`{"i": {"x": "y"}}`), &body{})); got != "i.x" {
		t.Errorf("field %q", got)
	}
}
