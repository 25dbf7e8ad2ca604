package badjson

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// Error is an error of encoding/json for people: "max_tokens is a string, must be a whole number". The
// error itself stays in the chain. Errors that name no Go type are returned as they are, and so are those
// that somebody has wrapped: they have words already.
func Error(err error) error {
	if err == io.EOF {
		return &said{"nothing is there", err}
	}
	wrong, ok := err.(*json.UnmarshalTypeError)
	if !ok {
		if err != nil && strings.HasPrefix(err.Error(), "json: ") { // an unknown field
			return &said{strings.TrimPrefix(err.Error(), "json: "), err}
		}
		return err
	}
	if wrong.Field == "" {
		return &said{fmt.Sprintf("it is %s, must be %s", given(wrong.Value), wanted(wrong.Type)), err}
	}
	return &said{fmt.Sprintf("%s is %s, must be %s", wrong.Field, given(wrong.Value), wanted(wrong.Type)), err}
}

// Field is the key whose value has the wrong type, empty when that is not what is wrong.
func Field(err error) string {
	if wrong, ok := err.(*json.UnmarshalTypeError); ok {
		return wrong.Field
	}
	return ""
}

// said is an error in other words.
type said struct {
	text string
	err  error
}

func (s *said) Error() string { return s.text }
func (s *said) Unwrap() error { return s.err }

// given is a value as encoding/json calls it: a type, or "number" and the digits.
func given(value string) string {
	switch {
	case value == "array":
		return "a list"
	case value == "bool":
		return "true or false"
	case value == "object":
		return "an object"
	}
	return "a " + strings.TrimSpace(value)
}

// wanted is a Go type as JSON has it.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number from 0"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "an object"
}
