package dial

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
)

const (
	shortestKey = 4 // what is shorter hides nothing, and stands in many a word
	// so much of a key at the beginning is taken out with what follows of it: texts of others are cut off
	tellingPart = 6
	maxHidden   = 48 // keys change, and tokens do each half hour
)

// Secrets are what was sent to a server, to be taken out of what it answers before that is shown. Any number of
// goroutines may use one.
type Secrets struct {
	mu     sync.Mutex
	hidden []string // in the forms in which a server may repeat them
}

// Hide remembers keys, to be taken out of errors. Of a user name with a password it is the latter too, and of a
// header what follows its scheme.
func (s *Secrets) Hide(keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		parts := []string{key}
		for _, separator := range []string{":", " "} {
			if _, rest, ok := strings.Cut(key, separator); ok {
				parts = append(parts, strings.TrimSpace(rest))
			}
		}
		for _, part := range parts {
			quoted := strconv.Quote(part)
			for _, form := range []string{
				part, url.QueryEscape(part), url.PathEscape(part), quoted[1 : len(quoted)-1],
			} {
				if len(form) >= shortestKey && !slices.Contains(s.hidden, form) {
					s.hidden = append(s.hidden, form)
				}
			}
		}
	}
	s.hidden = slices.Delete(s.hidden, 0, max(0, len(s.hidden)-maxHidden))
}

// Conceal takes keys, and what is left of them where a text was cut off, out of a text that others wrote, in upper or
// lower case. Tokens begin alike: of all that match it is the longest that goes.
func (s *Secrets) Conceal(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.hidden) == 0 {
		return text
	}
	var out strings.Builder
	for i := 0; i < len(text); {
		longest := 0
		for _, key := range s.hidden {
			if n := common(text[i:], key); n >= min(len(key), tellingPart) {
				longest = max(longest, n)
			}
		}
		if longest > 0 {
			out.WriteString("…")
			i += longest
			continue
		}
		out.WriteByte(text[i])
		i++
	}
	return out.String()
}

// common returns for how many bytes two texts begin alike, but for the case of ASCII letters.
func common(a, b string) int {
	lower := func(c byte) byte {
		if c >= 'A' && c <= 'Z' {
			return c + 'a' - 'A'
		}
		return c
	}
	n := 0
	for n < len(a) && n < len(b) && lower(a[n]) == lower(b[n]) {
		n++
	}
	return n
}
