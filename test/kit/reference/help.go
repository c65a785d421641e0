package reference

import (
	"fmt"
	"maps"
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

// A command is a command of a program with its help, split into its parts.
type command struct {
	words                  []string
	about, usage, examples string
	flags                  []flagHelp
}

// A flagHelp is the help of a flag: its names with the type of its value, and its description.
type flagHelp struct{ names, about string }

var (
	flagLine  = regexp.MustCompile(`^ +((?:-\w, )?--.*?) {2,}(\S.*)$`)
	flagName  = regexp.MustCompile(`--[\w-]+`)
	parts     = regexp.MustCompile(`(?m)^(Usage|Examples|Flags|Global Flags):\n((?: .*(?:\n|$))+)`)
	onlyFlags = regexp.MustCompile(`^[\w -]+ \[(?:flags|command)\]$`)
)

// parse splits the help of a command. Flags that only print the help or the version are omitted.
func parse(words []string, help string) command {
	about, _, _ := strings.Cut(strings.TrimSpace(help), "\n\n")
	about, _, _ = strings.Cut(strings.Join(strings.Fields(about), " "), ". ")
	c := command{words: words, about: strings.TrimSuffix(about, ".")}
	for _, m := range parts.FindAllStringSubmatch(help, -1) {
		switch m[1] {
		case "Examples":
			c.examples = firstExamples(m[2])
		case "Usage":
			for line := range strings.Lines(m[2]) {
				if !onlyFlags.MatchString(strings.TrimSpace(line)) {
					c.usage += line
				}
			}
		default:
			for line := range strings.Lines(m[2]) {
				f := flagLine.FindStringSubmatch(strings.TrimRight(line, "\n"))
				if f != nil && !slices.Contains([]string{"--help", "--version"}, flagName.FindString(f[1])) {
					c.flags = append(c.flags, flagHelp{f[1], f[2]})
				}
			}
		}
	}
	return c
}

// firstExamples returns at most two examples. An example continues after a backslash at the end of a line.
func firstExamples(text string) string {
	var b strings.Builder
	n := 0
	for line := range strings.Lines(text) {
		if n == 2 {
			break
		}
		b.WriteString(line)
		if !strings.HasSuffix(strings.TrimSpace(line), "\\") {
			n++
		}
	}
	return b.String()
}

// Commands describes every command of a program in Markdown, with the first sentence of its description, its usage
// unless it only consists of flags, two examples and its flags. Flags with the same help in several commands are
// described once, in the section of the program.
func Commands(call func(words ...string) string, program string) string {
	var all []command
	users, variants := map[flagHelp]int{}, map[string]map[flagHelp]bool{}
	EachCommand(call, func(words []string, help string, _ []string) {
		c := parse(words, help)
		for _, f := range c.flags {
			users[f]++
			name := flagName.FindString(f.names)
			if variants[name] == nil {
				variants[name] = map[flagHelp]bool{}
			}
			variants[name][f] = true
		}
		all = append(all, c)
	}, program)
	isShared := func(f flagHelp) bool { return users[f] > 1 && len(variants[flagName.FindString(f.names)]) == 1 }
	shared := slices.SortedFunc(maps.Keys(users), func(a, b flagHelp) int {
		return strings.Compare(flagName.FindString(a.names), flagName.FindString(b.names))
	})
	shared = slices.DeleteFunc(shared, func(f flagHelp) bool { return !isShared(f) })
	var b strings.Builder
	for i, c := range all {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", strings.Join(c.words, " "), strings.TrimSpace(c.about))
		flags := c.flags
		if i == 0 && len(shared) > 0 {
			b.WriteString("\nSeveral commands accept these flags, and their sections only list the names:\n")
			flags = append(slices.Clone(shared), flags...)
		}
		var own []flagHelp
		var names []string
		for _, f := range flags {
			if i > 0 && isShared(f) {
				names = append(names, flagName.FindString(f.names))
			} else {
				own = append(own, f)
			}
		}
		blocks := []string{c.usage, c.examples, describeFlags(own), strings.Join(names, ", ")}
		if len(names) > 0 {
			blocks[3] = "  " + blocks[3]
		}
		for i := range blocks {
			blocks[i] = strings.Trim(blocks[i], "\n")
		}
		blocks = slices.DeleteFunc(blocks, func(block string) bool { return block == "" })
		if len(blocks) > 0 {
			fmt.Fprintf(&b, "\n```text\n%s\n```\n", strings.Join(blocks, "\n\n"))
		}
	}
	return b.String()
}

// describeFlags formats flags in two columns.
func describeFlags(flags []flagHelp) string {
	width := 0
	for _, f := range flags {
		width = max(width, len(f.names))
	}
	var b strings.Builder
	for _, f := range flags {
		fmt.Fprintf(&b, "  %-*s   %s\n", width, f.names, f.about)
	}
	return b.String()
}
