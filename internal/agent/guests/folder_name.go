package guests

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxFolder = 128 // maximum length of a directory name, in bytes
	maxName   = 253 // maximum length of a machine name, in bytes, as accepted by the agent in the guest
)

var (
	plainName = regexp.MustCompile(`^[\w+@=][\w.+@=-]{0,127}$`)
	// A name that starts with a dot or a dash would be a hidden directory or look like an option.
	unusual = regexp.MustCompile(`^[.-]|[^\w.+@=-]`)
)

// Folder returns the name of a virtual machine's directory. It is the name of the machine if that consists of at
// most 128 ASCII letters, digits and characters of "._+@=-", and does not start with "." or "-". Other names are
// truncated and cleaned, followed by "~" and a part of their hash, so that they differ from each other and from
// plain names. Folder returns an error for invalid names.
func Folder(name string) (string, error) {
	if name == "" || len(name) > maxName || name == "." || name == ".." || strings.Contains(name, "/") ||
		!utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return "", fmt.Errorf("invalid name %.300q: want 1 to %d bytes of UTF-8 without slashes and control characters",
			name, maxName)
	}
	if plainName.MatchString(name) {
		return name, nil
	}
	hash := sha256.Sum256([]byte(name))
	clean := unusual.ReplaceAllLiteralString(name[:min(len(name), maxFolder/2)], "_")
	return fmt.Sprintf("%s~%x", clean, hash[:8]), nil
}
