package dial

import (
	"cmp"
	"errors"
	"io/fs"
	"net/url"
	"slices"
	"strings"
)

// KeyReader reads key files. It returns the content without surrounding white space, or [fs.ErrNotExist] if the
// file does not exist.
type KeyReader interface {
	Key(name string) (string, error)
}

// hostsOf is the suffix of the file with the hosts that may receive a key.
const hostsOf = ".hosts"

// Key reads a key that is sent to a URL, and conceals it in later errors. The optional file NAME.hosts lists the
// hosts that may receive the key. If this file does not exist, only the hosts in home are allowed. For http URLs,
// the hosts in the file must include the port. If keys is nil, Key returns an error.
func (c *Client) Key(keys KeyReader, name string, to *url.URL, home string) (string, error) {
	if keys == nil {
		return "", Refuse(ReasonAuth, "key %q: this controller has no keys", name)
	}
	hosts, err := keys.Key(name + hostsOf)
	inClear := to.Scheme == "http" && err == nil // the author of the URL could cause the key to be sent unencrypted
	switch {
	case errors.Is(err, fs.ErrNotExist):
		hosts = home
	case err != nil:
		return "", Refuse(ReasonAuth, "reading the hosts of key %q: %w", name, err)
	}
	if !slices.ContainsFunc(strings.Fields(hosts), func(host string) bool {
		return Names(host, to) && (!inClear || strings.HasSuffix(host, ":"+cmp.Or(to.Port(), "80")))
	}) {
		return "", Refuse(ReasonAuth, "key %q must not be sent to %s: add the host to %s in its Secret",
			name, to.Host, name+hostsOf)
	}
	key, err := keys.Key(name)
	if err != nil {
		return "", Refuse(ReasonAuth, "reading key %q: %w", name, err)
	}
	if key = strings.TrimSpace(key); key == "" {
		return "", Refuse(ReasonAuth, "key %q is empty", name)
	}
	c.Secrets.Hide(key)
	return key, nil
}
