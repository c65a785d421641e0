package energy

import (
	"fmt"
	"slices"
	"strings"
)

// nameOf returns the name of v, or "kind(v)" if v is out of range.
func nameOf[T ~uint8](kind string, names []string, v T) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("%s(%d)", kind, uint8(v))
}

// named sets v to the index of text in names. It returns an error if the name is unknown.
func named[T ~uint8](kind string, names []string, text []byte, v *T) error {
	i := slices.Index(names, string(text))
	if i < 0 {
		return fmt.Errorf("unknown %s %q: want one of %s", kind, text, strings.Join(names, ", "))
	}
	*v = T(i)
	return nil
}
