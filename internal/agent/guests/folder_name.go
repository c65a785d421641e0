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
	maxFolder = 128 // bytes of a folder's name
	maxName   = 253 // bytes of a virtual machine's, as its agent takes it back from kubenergy.json
)

// Folder returns the folder of a virtual machine below the one of all. It is the name itself if that consists of
// ASCII letters, digits and any of "._+@=-", begins with none of ".-", and has at most 128 bytes. Other names are cut
// and cleaned, and told apart by a part of their hash after a "~", which no plain name has. What is no name at all is
// refused.
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

// first reports whether a name that begins so could be taken for something else: a hidden folder, or an option.
func first(c byte) bool { return c == '.' || c == '-' }

func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._+@=-", c) >= 0
}
