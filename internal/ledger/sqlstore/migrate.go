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
	return d.update(ctx, func(ctx context.Context, s *session) error {
		if d.dialect.Lock != "" {
			if _, err := s.conn.ExecContext(ctx, d.dialect.Lock); err != nil {
				return err
			}
		}
		have, oldest, err := d.versions(ctx, s)
		if err != nil {
			return err
		}
		latest := versionAfter(migrations)
		if oldest > latest {
			return refused{fmt.Errorf(
				"the store has schema version %d and requires support for version %d, but this program supports %d: "+
					"a newer program is needed", have, oldest, latest)}
		}
		if have > 0 && have < firstVersion {
			return refused{fmt.Errorf("the store has the unreleased schema version %d: an empty store is needed", have)}
		}
		if have >= latest {
			return nil
		}
		for version := max(have+1, firstVersion); version <= latest; version++ {
			m := migrations[version-firstVersion]
			for _, statement := range d.dialect.statements(m.text) {
				if _, err := s.conn.ExecContext(ctx, statement); err != nil {
					return fmt.Errorf("migrating to version %d: %w", version, err)
				}
			}
			if !m.additive {
				oldest = version
			}
		}
		if err := s.setMeta(ctx, "oldest", strconv.Itoa(oldest)); err != nil {
			return err
		}
		return s.setMeta(ctx, "schema", strconv.Itoa(latest))
	})
}

// versions returns the schema version, or 0 if the database is empty, and the oldest version that a program must
// support to use it.
func (d *DB) versions(ctx context.Context, s *session) (schema, oldest int, err error) {
	var tables int
	if _, err := s.one(ctx, d.dialect.Tables, []any{"meta"}, &tables); err != nil || tables == 0 {
		return 0, 0, err
	}
	for key, into := range map[string]*int{"schema": &schema, "oldest": &oldest} {
		var value string
		found, err := s.one(ctx, "SELECT value FROM meta WHERE key = $1", []any{key}, &value)
		if err != nil {
			return 0, 0, err
		}
		*into, err = strconv.Atoi(value)
		if !found || err != nil || *into < 1 {
			return 0, 0,
				refused{fmt.Errorf("%w: missing or invalid schema version, or not a ledger: %s is %q",
					ledger.ErrDamaged, key, value)}
		}
	}
	return schema, oldest, nil
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
