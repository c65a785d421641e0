package strategy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/spelling"
)

// unknown returns an error for a name that [New] does not accept, including a suggestion if a similar name exists.
// The placements in the parameter also are accepted in addition to those of [New].
func unknown(name string, whereIsKnown bool, also ...string) error {
	left, right, last := parts(name)
	wheres, whens := Names()
	wheres = slices.Sorted(slices.Values(append(wheres, also...)))
	rest := name[len(left):]
	switch {
	case slices.Contains(whens, left) && rest == "":
		return fmt.Errorf("unknown strategy %q: %s is a start rule: use energy+%s", name, left, left)
	case !whereIsKnown:
		if plain, order, ordered := strings.Cut(left, "/"); ordered && slices.Contains(wheres, plain) &&
			slices.Contains(sched.Orders(), order) {
			return orderWithoutWhen(name, plain, order)
		}
		return fmt.Errorf("unknown strategy %q%s: want one of %s, optionally followed by + and a start rule",
			name, spelling.Suggest("", spelling.Nearest(left, wheres), rest), strings.Join(wheres, ", "))
	case !slices.Contains(whens, right):
		_, order, ordered := strings.Cut(rest, "/")
		if ordered {
			order = "/" + order
		}
		return fmt.Errorf("unknown strategy %q%s: after the + want one of %s",
			name, spelling.Suggest(left+"+", spelling.Nearest(right, whens), order), strings.Join(whens, ", "))
	default:
		return fmt.Errorf("unknown strategy %q%s: after the / want one of %s",
			name, spelling.Suggest(left+"+"+right+"/", spelling.Nearest(last, sched.Orders()), ""),
			strings.Join(sched.Orders(), ", "))
	}
}

func orderWithoutWhen(name, left, order string) error {
	if _, matches := matchers[left]; matches {
		return unordered(name, left)
	}
	return fmt.Errorf("unknown strategy %q: an order must follow a start rule: want %s+now/%s", name, left, order)
}

// unordered returns an error for an order after a strategy that does not support one.
func unordered(name, part string) error {
	return fmt.Errorf("unknown strategy %q: %s decides on the whole queue and does not support an order", name, part)
}
