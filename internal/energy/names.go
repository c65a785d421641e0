package energy

import (
	"fmt"
	"slices"
)

// nameOf returns the name that a value of a kind of things has.
func nameOf[T ~uint8](kind string, names []string, v T) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("%s(%d)", kind, uint8(v))
}

// named sets a value to the one of a name.
func named[T ~uint8](kind string, names []string, text []byte, v *T) error {
	i := slices.Index(names, string(text))
	if i < 0 {
		return fmt.Errorf("unknown %s %q: have %v", kind, text, names)
	}
	*v = T(i)
	return nil
}
