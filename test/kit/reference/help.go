package reference

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var subs = regexp.MustCompile(`(?ms)^(?:Available|Additional) Commands:\n(.*?)\n\n`)

// EachCommand calls found with every command of a program, the program itself first: its words, its help, and the names
// of the commands below it. The help is what call returns for the words.
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
		if !slices.Contains([]string{"help", "completion", "kubectl"}, name) { // what is below these is not ours
			EachCommand(call, found, append(slices.Clone(words), name)...)
		}
	}
}

// Commands describes every command of a program in Markdown: what it is for, then its usage and its flags as its help
// has them.
func Commands(call func(words ...string) string, program string) string {
	var b strings.Builder
	EachCommand(call, func(words []string, help string, _ []string) {
		about, usage, _ := strings.Cut(help, "Usage:\n")
		usage, _, _ = strings.Cut(usage, "\nUse \"") // which tells of the help of other commands
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n```text\n%s\n```\n", strings.Join(words, " "), strings.TrimSpace(about),
			strings.Trim(usage, "\n"))
	}, program)
	return b.String()
}
