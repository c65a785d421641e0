package guests

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxFolder = 128 // maximum length of a directory name, in bytes
	maxName   = 253 // maximum length of a machine name, in bytes, as accepted by the agent in the guest
)

// Folder returns the name of a virtual machine's directory. It is the name of the machine if that consists of at
// most 128 ASCII letters, digits and characters of "._+@=-", and does not start with "." or "-". Other names are
// truncated and cleaned, followed by "~" and a part of their hash, so that they differ from each other and from
// plain names. Folder returns an error for invalid names.
func Folder(name string) (string, error) {
	switch {
	case name == "":
		return "", errors.New("the name is empty")
	case len(name) > maxName:
		return "", fmt.Errorf("the name has %d bytes, more than %d", len(name), maxName)
	case name == "." || name == ".." || strings.Contains(name, "/"):
		return "", fmt.Errorf("the name %q is a path", name)
	case !utf8.ValidString(name):
		return "", fmt.Errorf("the name %q is not UTF-8", name)
	case strings.ContainsFunc(name, unicode.IsControl):
		return "", fmt.Errorf("the name %q has control characters", name)
	}
	if len(name) <= maxFolder && plainName(name) {
		return name, nil
	}
	clean := []byte(name[:min(len(name), maxFolder/2)])
	for i, c := range clean {
		if !plain(c) || i == 0 && first(c) {
			clean[i] = '_'
		}
	}
	hash := sha256.Sum256([]byte(name))
	return string(clean) + "~" + hex.EncodeToString(hash[:8]), nil
}

func plainName(name string) bool {
	return !first(name[0]) && !slices.ContainsFunc([]byte(name), func(c byte) bool { return !plain(c) })
}

// first reports whether c must not be the first character, because the name would be a hidden directory or look
// like an option.
func first(c byte) bool { return c == '.' || c == '-' }

func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._+@=-", c) >= 0
}
