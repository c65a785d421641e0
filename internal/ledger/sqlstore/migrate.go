package sqlstore

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

// Schema returns the version of the schema that this program writes.
func Schema() int { return versionAfter(migrations) }

// migrate applies all missing migrations in one transaction. A database with a newer schema is used as is if it is
// marked as compatible.
func (d *DB) migrate(ctx context.Context, migrations []migration) error {
	return d.update(ctx, func(s *session) {
		if d.dialect.Lock != "" {
			s.run(d.dialect.Lock)
		}
		have, oldest := d.versions(s)
		latest := versionAfter(migrations)
		if oldest > latest {
			s.check(refused{fmt.Errorf("the store has schema version %d and requires support for version %d, but this "+
				"program supports %d: a newer program is needed", have, oldest, latest)})
		}
		if have > 0 && have < firstVersion {
			s.check(refused{fmt.Errorf("the store has schema version %d, which was not released: an empty store is "+
				"needed", have)})
		}
		if s.err != nil || have >= latest {
			return
		}
		for version := max(have+1, firstVersion); version <= latest; version++ {
			m := migrations[version-firstVersion]
			s.within(fmt.Sprintf("migrating to version %d", version), func() {
				for _, statement := range d.dialect.statements(m.text) {
					s.run(statement)
				}
			})
			if !m.additive {
				oldest = version
			}
		}
		s.setMeta("oldest", strconv.Itoa(oldest))
		s.setMeta("schema", strconv.Itoa(latest))
	})
}

// versions returns the schema version, or 0 if the database is empty, and the oldest version that a program must
// support to use it.
func (d *DB) versions(s *session) (schema, oldest int) {
	var tables int
	if s.one(d.dialect.Tables, []any{"meta"}, &tables); tables == 0 {
		return 0, 0
	}
	for key, into := range map[string]*int{"schema": &schema, "oldest": &oldest} {
		var value string
		found := s.one("SELECT value FROM meta WHERE key = $1", []any{key}, &value)
		var err error
		if *into, err = strconv.Atoi(value); !found || err != nil || *into < 1 {
			s.check(refused{fmt.Errorf("%w: missing or invalid schema version, or not a ledger: %s is %q",
				ledger.ErrDamaged, key, value)})
		}
	}
	return schema, oldest
}

// Statements returns the statements that create an empty store of the current version.
func Statements(d Dialect) (all []string) {
	for _, m := range migrations {
		all = append(all, d.statements(m.text)...)
	}
	return all
}

var created = regexp.MustCompile(`CREATE TABLE (\w+)`)

// Tables returns the names of all tables of the current and of previous versions.
func Tables() (all []string) {
	for _, statement := range Statements(Dialect{}) {
		if found := created.FindStringSubmatch(statement); found != nil {
			all = append(all, found[1])
		}
	}
	return all
}

func (d *Dialect) statements(text string) (all []string) {
	text = strings.NewReplacer("{blob}", d.Blob, "{serial}", d.Serial).Replace(strings.TrimSpace(text))
	for statement := range strings.SplitSeq(text, ";\n") {
		all = append(all, strings.ReplaceAll(statement, "{step}", "hours"))
		if strings.Contains(statement, "{step}") {
			all = append(all, strings.ReplaceAll(statement, "{step}", "days"))
		}
	}
	return all
}
