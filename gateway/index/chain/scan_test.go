package chain

import (
	"fmt"
	"reflect"
)

// pointersIn names the first part of a value's type that the garbage collector would follow, "" for none.
func pointersIn(value any) string { return pointers(reflect.TypeOf(value), "it") }

func pointers(t reflect.Type, at string) string {
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			if p := pointers(t.Field(i).Type, fmt.Sprintf("%s.%s", at, t.Field(i).Name)); p != "" {
				return p
			}
		}
		return ""
	case reflect.Array:
		return pointers(t.Elem(), at+"[0]")
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.String, reflect.Interface, reflect.Chan, reflect.Func, reflect.UnsafePointer:
		return at
	}
	return ""
}
