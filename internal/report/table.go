package report

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// A Document is what a command prints. Its fields are what JSON and YAML show of it. Documents that can be written as
// CSV also have a method Sheet, which returns the table, and those that are pages a method HTML with the writer as its
// argument.
type Document interface {
	// Text is the document for people. Wide tables have all columns; colours are for terminals.
	Text(wide, colours bool) string
}

// Write writes a document as table, wide or text, all for people, or as json, yaml, csv or html. Nothing is written of
// a document that cannot be written whole.
func Write(w io.Writer, d Document, format string, colours bool) error {
	switch format {
	case "table", "text", "wide":
		_, err := io.WriteString(w, d.Text(format == "wide", colours))
		return err
	case "json":
		return WriteJSON(w, d)
	case "yaml":
		data, err := yaml.Marshal(d)
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	case "csv":
		if d, ok := d.(interface{ Sheet() *Table }); ok {
			return d.Sheet().CSV(w)
		}
	case "svg":
		if picture, ok := d.(interface{ SVG() ([]byte, error) }); ok {
			data, err := picture.SVG()
			if err != nil {
				return err
			}
			_, err = w.Write(data)
			return err
		}
	case "html":
		if page, ok := d.(interface{ HTML(w io.Writer) error }); ok {
			return page.HTML(w)
		}
	}
	return fmt.Errorf("unknown output format %q", format)
}

// WriteJSON writes a value as indented JSON.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// A Column says how its cells are written: rounded in tables for people, exactly in CSV.
type Column struct {
	Name  string               // above it in tables, in lines, the last one with the unit; "": it is only in CSV
	Field string               // in CSV; "": it is only in tables
	Show  func(float64) string // numbers in tables; nil: as in CSV
	Exact func(float64) string // numbers in CSV; nil: all digits
	Words bool                 // it is one of the first columns, which are of words and stand on the left
	Wide  bool                 // it is shown only where there is room
	Rare  bool                 // it is shown only where some cell is another than 0
}

// A Table is rows under columns. Cells are numbers, words and times; nil and nil pointers are empty ones.
type Table struct {
	Title   string
	Columns []Column
	Rows    [][]any
	Total   []any // under the rows; nil: there is none
}

// A Cell is one that tables show as Text, in whatever way its column would.
type Cell struct {
	Value any
	Text  string
}

// Sheet returns a table that is only written as CSV.
func Sheet(fields ...string) *Table {
	return &Table{Columns: sliceutil.Map(fields, func(field string) Column { return Column{Field: field} })}
}

// Heads returns a table that is only shown to people. So many of its columns are of words.
func Heads(words int, names ...string) *Table {
	t := &Table{}
	for i, name := range names {
		t.Columns = append(t.Columns, Column{Name: name, Words: i < words})
	}
	return t
}

// widen leaves columns to wide tables.
func (t *Table) widen(names ...string) {
	for i := range t.Columns {
		c := &t.Columns[i]
		c.Wide = c.Wide || slices.Contains(names, c.Name)
	}
}

// Add adds a row.
func (t *Table) Add(cells ...any) { t.Rows = append(t.Rows, cells) }

// CSV writes all columns that have a field.
func (t *Table) CSV(w io.Writer) error {
	rows := make([][]string, 1+len(t.Rows))
	for i, c := range t.Columns {
		if c.Field == "" {
			continue
		}
		exact := number
		if c.Exact != nil {
			exact = c.Exact
		}
		rows[0] = append(rows[0], c.Field)
		for k, row := range t.Rows {
			value := row[i]
			if cell, ok := value.(Cell); ok {
				value = cell.Value
			}
			rows[k+1] = append(rows[k+1], render(value, exact, humanize.CSVCell))
		}
	}
	return csv.NewWriter(w).WriteAll(rows)
}

// shown is what people are shown of a table, in text and in HTML.
type shown struct {
	Title  string
	Header []string
	Words  int // columns on the left
	Rows   [][]string
	Total  []string
}

// shown leaves out columns that say nothing in any row.
func (t *Table) shown(wide bool) *shown {
	s := &shown{Title: t.Title, Rows: make([][]string, len(t.Rows))}
	for i, c := range t.Columns {
		if c.Name == "" || c.Wide && !wide || t.silent(i) {
			continue
		}
		s.Header = append(s.Header, c.Name)
		if c.Words {
			s.Words++
		}
		for k, row := range t.Rows {
			s.Rows[k] = append(s.Rows[k], c.text(row[i]))
		}
		if t.Total != nil {
			s.Total = append(s.Total, c.text(t.Total[i]))
		}
	}
	return s
}

// silent reports whether a column has nothing to say.
func (t *Table) silent(i int) bool {
	c := &t.Columns[i]
	shows := func(row []any) bool {
		return c.text(row[i]) != "" && !(c.Rare && (row[i] == 0 || row[i] == 0.0))
	}
	if i == 0 || len(t.Rows) == 0 && t.Total == nil {
		return false
	}
	return !slices.ContainsFunc(t.Rows, shows) && (t.Total == nil || !shows(t.Total))
}

// only is a text where there is something to say, else an empty cell. A column of empty cells alone is left out.
func only(when bool, text string) any {
	if when {
		return text
	}
	return nil
}

func (c *Column) text(v any) string {
	if cell, ok := v.(Cell); ok {
		return visible(cell.Text)
	}
	show := number
	if c.Show != nil {
		show = c.Show
	}
	return render(v, show, visible)
}

// Framed lays the table out in a frame.
func (t *Table) Framed(wide, colours bool) string {
	s := t.shown(wide)
	w := s.writer()
	if colours {
		w.Style().Color.Header = text.Colors{text.Bold} //nolint:misspell // the library's spelling
	}
	var configs []table.ColumnConfig
	for i := s.Words; i < len(s.Header); i++ {
		configs = append(configs, table.ColumnConfig{
			Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight, AlignFooter: text.AlignRight,
		})
	}
	w.SetColumnConfigs(configs)
	if s.Total != nil {
		w.AppendFooter(tableRow(s.Total))
	}
	return w.Render()
}

// Open lays the table out without a frame: what people paste into a ticket is to stay readable.
func (t *Table) Open() string {
	w := t.shown(true).writer()
	w.Style().Options = table.OptionsNoBordersAndSeparators
	lines := strings.Split(w.Render(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// Plain lays the table out as kubectl does, with a line end.
func (t *Table) Plain() string {
	s := t.shown(true)
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{s.Header}, s.Rows...) {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush() // a builder never fails
	return b.String()
}

func (s *shown) writer() table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header, t.Style().Format.Footer = text.FormatDefault, text.FormatDefault
	t.AppendHeader(tableRow(s.Header))
	for _, row := range s.Rows {
		t.AppendRow(tableRow(row))
	}
	return t
}

func tableRow(cells []string) table.Row { return sliceutil.Map(cells, func(s string) any { return s }) }

// render writes a value, numbers and words as told.
func render(v any, show func(float64) string, word func(string) string) string {
	switch v := v.(type) {
	case nil:
		return ""
	case *float64:
		if v == nil {
			return ""
		}
		return show(*v)
	case float64:
		return show(v)
	case int:
		return strconv.Itoa(v)
	case bool:
		return strconv.FormatBool(v)
	case time.Time:
		return stamp(v)
	case *time.Time:
		if v == nil {
			return ""
		}
		return stamp(*v)
	case string:
		return word(v)
	}
	return fmt.Sprint(v)
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// visible takes control characters out of names that others chose: a terminal would obey them.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && !strconv.IsPrint(r) {
			return '�'
		}
		return r
	}, s)
}
