package exposition

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// pairs returns the text of labels, given alternating names and values, with a comma before each. It makes the values
// valid.
func pairs(namesAndValues ...string) string {
	var text []byte
	for pair := range slices.Chunk(namesAndValues, 2) {
		text = fmt.Appendf(text, `,%s="%s"`, pair[0], quoter.Replace(label(pair[1])))
	}
	return string(text)
}

// quoter escapes label values. They contain no newlines, see label.
var quoter = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// maxLabel is the maximum length of a label value, in bytes.
const maxLabel = 256

// label returns a valid label value. If a value is too long, not valid UTF-8 or contains control characters, it is
// cleaned and followed by a digest, so that different values remain different. The same applies to values that
// already end with such a digest.
func label(value string) string {
	clean := strings.Map(func(r rune) rune {
		if isControl(r) {
			return utf8.RuneError
		}
		return r // Map replaces invalid UTF-8 itself
	}, value)
	if clean == value && len(value) <= maxLabel && !digested.MatchString(value) {
		return value
	}
	digest := sha256.Sum256([]byte(value))
	return fmt.Sprintf("%s~%x", strings.ToValidUTF8(clean[:min(len(clean), maxLabel/2)], ""), digest[:8])
}

// digested matches values that end with a digest.
var digested = regexp.MustCompile(`~[0-9a-f]{16}$`)

func isControl(r rune) bool { return r < ' ' || r == 0x7f }
