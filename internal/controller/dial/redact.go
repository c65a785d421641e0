package dial

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
)

const (
	shortestKey = 4 // shorter keys are not secret and occur in ordinary words
	// A key prefix of this length is concealed with the rest of the match, because error texts may be truncated.
	tellingPart = 6
	maxHidden   = 48 // forgets old keys, because tokens are replaced every 30 minutes
)

// Secrets contains keys that were sent to a server and are removed from its responses before these are logged or
// returned. It is safe for concurrent use.
type Secrets struct {
	mu     sync.Mutex
	hidden []string // in all forms that a server may return
}

// Hide adds keys to be removed from errors. For a user name with a password it also adds the password, and for a
// header value with a scheme also the credentials after the scheme.
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

// Conceal replaces keys and truncated keys in a text, ignoring case. If several keys with the same prefix match, it
// replaces the longest match.
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

// common returns the length in bytes of the common prefix of two texts, ignoring the case of ASCII letters.
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
