package dial

import (
	"cmp"
	"errors"
	"io/fs"
	"net/url"
	"slices"
	"strings"
)

// KeyReader returns the content of a key file, without the space around it. A file that is not there is an
// [fs.ErrNotExist].
type KeyReader interface {
	Key(name string) (string, error)
}

// hostsOf is the end of the name of a file with the hosts that a key may be sent to.
const hostsOf = ".hosts"

// Key returns the content of a key file that is to be sent to a URL, and hides it in errors from then on. The file
// NAME.hosts beside it lists the hosts that may have it, without TLS with their port; without that file only those at
// home may. keys may be nil: there are none.
func (c *Client) Key(keys KeyReader, name string, to *url.URL, home string) (string, error) {
	if keys == nil {
		return "", Refuse(ReasonAuth, "key %q: this controller has no keys", name)
	}
	hosts, err := keys.Key(name + hostsOf)
	inClear := to.Scheme == "http" && err == nil // an author of URLs could have the network see the key
	switch {
	case errors.Is(err, fs.ErrNotExist):
		hosts = home
	case err != nil:
		return "", Refuse(ReasonAuth, "reading which hosts key %q is for: %w", name, err)
	}
	if !slices.ContainsFunc(strings.Fields(hosts), func(host string) bool {
		return Names(host, to) && (!inClear || strings.HasSuffix(host, ":"+cmp.Or(to.Port(), "80")))
	}) {
		return "", Refuse(ReasonAuth, "key %q is not sent to %s: its Secret does not say so; add the host to %s there",
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
