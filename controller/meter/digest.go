package meter

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
)

// challenge is how a server wants to be told who asks, by RFC 7616. SHA-256 is the only algorithm: a device that offers
// MD5 is not told anything.
type challenge struct {
	realm, nonce, opaque string
	session              bool // SHA-256-sess
	qop                  bool // qop=auth; without, it is RFC 2069
	stale                bool // the nonce is too old, and the password was right

	count uint32 // how often the nonce was used
}

const (
	maxChallenge = 4096
	// A server remembers how often a nonce was used; beyond, another one is asked for.
	mostUses = 1 << 30
)

// readChallenge returns the challenge among the headers of an answer that it can meet, or nil.
func readChallenge(h http.Header) *challenge {
	for _, line := range h.Values("WWW-Authenticate") {
		if len(line) > maxChallenge {
			continue
		}
		for _, c := range parseChallenges(line) {
			if !strings.EqualFold(c.scheme, "Digest") {
				continue
			}
			if met := c.digest(); met != nil {
				return met
			}
		}
	}
	return nil
}

// offered is a scheme and its parameters, in lower case.
type offered struct {
	scheme     string
	parameters map[string]string
}

func (o *offered) digest() *challenge {
	c := &challenge{realm: o.parameters["realm"], nonce: o.parameters["nonce"], opaque: o.parameters["opaque"]}
	c.stale = strings.EqualFold(o.parameters["stale"], "true")
	switch strings.ToUpper(o.parameters["algorithm"]) {
	case "SHA-256":
	case "SHA-256-SESS":
		c.session = true
	default:
		return nil
	}
	if qop, ok := o.parameters["qop"]; ok {
		for option := range strings.SplitSeq(qop, ",") {
			c.qop = c.qop || strings.EqualFold(strings.TrimSpace(option), "auth")
		}
		if !c.qop {
			return nil // auth-int alone
		}
	}
	if c.nonce == "" || c.session && !c.qop || !quotable(c.realm) || !quotable(c.nonce) || !quotable(c.opaque) {
		return nil
	}
	return c
}

// quotable reports whether a text of a server may be sent back in a header.
func quotable(s string) bool { return s == "" || plain(s) }

// parseChallenges reads a header that may offer several schemes: Basic realm="x", Digest realm="y", nonce="z". What
// cannot be read ends it.
func parseChallenges(text string) (all []offered) {
	for {
		text = strings.TrimLeft(text, " \t,")
		word, rest := token(text)
		if word == "" {
			return all
		}
		if name, value, rest, ok := parameter(word, rest); ok {
			if len(all) == 0 {
				return nil // a parameter of nothing
			}
			of := all[len(all)-1].parameters
			if _, twice := of[name]; !twice {
				of[name] = value
			}
			text = rest
			continue
		}
		all = append(all, offered{scheme: word, parameters: map[string]string{}})
		text = rest
	}
}

// parameter reads what follows the name of one.
func parameter(word, rest string) (name, value, after string, ok bool) {
	rest, ok = strings.CutPrefix(strings.TrimLeft(rest, " \t"), "=")
	if !ok {
		return "", "", "", false
	}
	rest = strings.TrimLeft(rest, " \t")
	if text, quoted := strings.CutPrefix(rest, `"`); quoted {
		value, after = unquote(text)
	} else {
		value, after = token(rest)
	}
	return strings.ToLower(word), value, after, true
}

// unquote reads up to the closing quote.
func unquote(text string) (value, after string) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			return b.String(), text[i+1:]
		case '\\':
			if i++; i < len(text) {
				b.WriteByte(text[i])
			}
		default:
			b.WriteByte(text[i])
		}
	}
	return b.String(), ""
}

// token reads up to what separates.
func token(text string) (word, rest string) {
	end := strings.IndexAny(text, " \t,=\"")
	if end < 0 {
		return text, ""
	}
	return text[:end], text[end:]
}

// answer returns the header that meets the challenge for one request, and counts it. cnonce is random; "" draws one.
func (c *challenge) answer(user, password, method, uri, cnonce string) string {
	if cnonce == "" {
		cnonce = rand.Text()
	}
	c.count++
	one := hash(user + ":" + c.realm + ":" + password)
	if c.session {
		one = hash(one + ":" + c.nonce + ":" + cnonce)
	}
	two := hash(method + ":" + uri)
	var b strings.Builder
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	fmt.Fprintf(&b, `Digest username="%s", realm="%s", nonce="%s", uri="%s", algorithm=%s`,
		quote.Replace(user), quote.Replace(c.realm), quote.Replace(c.nonce), uri, c.algorithm())
	if c.qop {
		nc := fmt.Sprintf("%08x", c.count)
		fmt.Fprintf(&b, `, response="%s", qop=auth, nc=%s, cnonce="%s"`,
			hash(strings.Join([]string{one, c.nonce, nc, cnonce, "auth", two}, ":")), nc, cnonce)
	} else {
		fmt.Fprintf(&b, `, response="%s"`, hash(one+":"+c.nonce+":"+two))
	}
	if c.opaque != "" {
		fmt.Fprintf(&b, `, opaque="%s"`, quote.Replace(c.opaque))
	}
	return b.String()
}

func (c *challenge) algorithm() string {
	if c.session {
		return "SHA-256-sess"
	}
	return "SHA-256"
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
