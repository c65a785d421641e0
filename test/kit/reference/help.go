package reference

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var subs = regexp.MustCompile(`(?ms)^(?:Available|Additional) Commands:\n(.*?)\n\n`)

// EachCommand calls found with every command of a program in depth-first order, starting with the program itself.
// Its arguments are the words of the command, its help and the names of its subcommands. call returns the help for
// the given words.
func EachCommand(call func(words ...string) string, found func(words []string, help string, below []string),
	words ...string,
) {
	help := call(words...)
	var below []string
	if m := subs.FindStringSubmatch(help); m != nil {
		for line := range strings.SplitSeq(m[1], "\n") {
			below = append(below, strings.Fields(line)[0])
		}
	}
	found(words, help, below)
	for _, name := range below {
		if !slices.Contains([]string{"help", "completion", "kubectl"}, name) { // not part of KubEnergy
			EachCommand(call, found, append(slices.Clone(words), name)...)
		}
	}
}

// Commands describes every command of a program in Markdown, with the description, usage and flags from its help.
func Commands(call func(words ...string) string, program string) string {
	var b strings.Builder
	EachCommand(call, func(words []string, help string, _ []string) {
		about, usage, _ := strings.Cut(help, "Usage:\n")
		usage, _, _ = strings.Cut(usage, "\nUse \"") // hint about the help of subcommands
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n```text\n%s\n```\n", strings.Join(words, " "), strings.TrimSpace(about),
			strings.Trim(usage, "\n"))
	}, program)
	return b.String()
}
