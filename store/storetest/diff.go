package storetest

import (
	"fmt"
	"reflect"
	"time"
)

// diff names the first difference between two values of one type, empty when
// there is none. Nil and empty slices and maps are equal, and so are two times
// that are one instant.
func diff(a, b reflect.Value, path string) string {
	if !a.IsValid() || !b.IsValid() {
		if a.IsValid() == b.IsValid() {
			return ""
		}
		return fmt.Sprintf("%s: %v against %v", path, a, b)
	}
	if a.Type() != b.Type() {
		return fmt.Sprintf("%s: a %v against a %v", path, a.Type(), b.Type())
	}
	if a.Type() == reflect.TypeFor[time.Time]() {
		at, aok := reflect.TypeAssert[time.Time](a)
		bt, bok := reflect.TypeAssert[time.Time](b)
		if !aok || !bok || at.Equal(bt) {
			return ""
		}
		return fmt.Sprintf("%s: %v against %v", path, at.UTC(), bt.UTC())
	}
	switch a.Kind() {
	case reflect.Pointer, reflect.Interface:
		if a.IsNil() || b.IsNil() {
			if a.IsNil() == b.IsNil() {
				return ""
			}
			return fmt.Sprintf("%s: %v against %v", path, a, b)
		}
		return diff(a.Elem(), b.Elem(), path)
	case reflect.Struct:
		for i := range a.NumField() {
			if d := diff(a.Field(i), b.Field(i), path+"."+a.Type().Field(i).Name); d != "" {
				return d
			}
		}
		return ""
	case reflect.Slice, reflect.Array:
		return diffList(a, b, path)
	case reflect.Map:
		return diffMap(a, b, path)
	default:
		if a.Equal(b) {
			return ""
		}
		return fmt.Sprintf("%s: %v against %v", path, a, b)
	}
}

func diffList(a, b reflect.Value, path string) string {
	if a.Len() != b.Len() {
		return fmt.Sprintf("%s: length %d against %d: %.300v against %.300v", path, a.Len(), b.Len(), a, b)
	}
	if a.Type().Elem().Kind() == reflect.Uint8 && a.Kind() == reflect.Slice {
		if string(a.Bytes()) != string(b.Bytes()) {
			return fmt.Sprintf("%s: %.100q against %.100q", path, a.Bytes(), b.Bytes())
		}
		return ""
	}
	for i := range a.Len() {
		if d := diff(a.Index(i), b.Index(i), fmt.Sprintf("%s[%d]", path, i)); d != "" {
			return d
		}
	}
	return ""
}

func diffMap(a, b reflect.Value, path string) string {
	if a.Len() != b.Len() {
		return fmt.Sprintf("%s: length %d against %d: %v against %v", path, a.Len(), b.Len(), a, b)
	}
	for _, key := range a.MapKeys() {
		if d := diff(a.MapIndex(key), b.MapIndex(key), fmt.Sprintf("%s[%v]", path, key)); d != "" {
			return d
		}
	}
	return ""
}
