package report

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// Document is the output of a command. JSON and YAML contain its fields. Documents that can be written as CSV also
// have a method Sheet that returns the table, and documents that can be written as HTML have a method
// HTML(io.Writer).
type Document interface {
	// Text returns the document for people. Wide tables have all columns. colours enables colors for terminals.
	Text(wide, colours bool) string
}

// Write writes a document in one of the formats table, wide, text, json, yaml, csv, svg and html. It writes no
// output if the conversion fails.
func Write(w io.Writer, d Document, format string, colours bool) error {
	data, err := []byte(nil), fmt.Errorf("unknown output format %q", format)
	switch format {
	case "table", "text", "wide":
		data, err = []byte(d.Text(format == "wide", colours)), nil
	case "json":
		return WriteJSON(w, d)
	case "yaml":
		data, err = yaml.Marshal(d)
	case "csv":
		if d, ok := d.(interface{ Sheet() *Table }); ok {
			return d.Sheet().CSV(w)
		}
	case "svg":
		if picture, ok := d.(interface{ SVG() ([]byte, error) }); ok {
			data, err = picture.SVG()
		}
	case "html":
		if page, ok := d.(interface{ HTML(w io.Writer) error }); ok {
			return page.HTML(w)
		}
	}
	if err == nil {
		_, err = w.Write(data)
	}
	return err
}

// WriteJSON writes a value as indented JSON.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// Column defines the format of its cells, which are rounded in tables for people and exact in CSV.
type Column struct {
	Name  string               // header in tables, with the unit in the last line; empty if the column is only in CSV
	Field string               // header in CSV; empty if the column is only in tables
	Show  func(float64) string // formats numbers in tables; nil for the format of CSV
	Exact func(float64) string // formats numbers in CSV; nil for all digits
	Words bool                 // the column is one of the first ones, which contain words and are aligned left
	Wide  bool                 // the column is only in wide tables
	Rare  bool                 // the column is omitted if it contains only zeros
}

// Table consists of rows and columns. Cells are numbers, words or times. Nil and nil pointers are empty cells.
type Table struct {
	Title   string
	Columns []Column
	Rows    [][]any
	Total   []any // below the rows; nil for none
}

// Cell is a value that is shown as Text in tables, regardless of the format of its column.
type Cell struct {
	Value any
	Text  string
}

// Sheet returns a table that is only written as CSV.
func Sheet(fields ...string) *Table {
	return &Table{Columns: sliceutil.Map(fields, func(field string) Column { return Column{Field: field} })}
}

// Heads returns a table that is only shown to people. Its first columns contain words.
func Heads(words int, names ...string) *Table {
	t := &Table{}
	for i, name := range names {
		t.Columns = append(t.Columns, Column{Name: name, Words: i < words})
	}
	return t
}

// widen restricts columns to wide tables.
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

// shown contains the texts of a table, for text and HTML.
type shown struct {
	Title  string
	Header []string
	Words  int // number of left-aligned columns
	Rows   [][]string
	Total  []string
}

// shown returns the texts of a table without empty columns.
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

// silent reports whether a column is empty.
func (t *Table) silent(i int) bool {
	c := &t.Columns[i]
	shows := func(row []any) bool {
		return c.text(row[i]) != "" && !(c.Rare && (row[i] == 0 || row[i] == 0.0))
	}
	return i > 0 && (len(t.Rows) > 0 || t.Total != nil) &&
		!slices.ContainsFunc(t.Rows, shows) && (t.Total == nil || !shows(t.Total))
}

// only returns text if when is true, and an empty cell otherwise. Columns with only empty cells are omitted.
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

// Framed returns the table in a frame.
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

// Open returns the table without a frame, so that it stays readable when pasted into a ticket.
func (t *Table) Open() string { return t.shown(true).unframed(" ", " ") }

// Plain returns the table in the format of kubectl, with a trailing newline.
func (t *Table) Plain() string { return t.shown(true).unframed("", "  ") + "\n" }

// unframed returns the table without a frame, with the given padding of cells.
func (s *shown) unframed(left, right string) string {
	w := s.writer()
	w.Style().Options = table.OptionsNoBordersAndSeparators
	w.Style().Box.PaddingLeft, w.Style().Box.PaddingRight = left, right
	lines := strings.Split(w.Render(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
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

// render formats a cell. show and word format numbers and words.
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
		return stamp(*cmp.Or(v, &time.Time{}))
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

// visible replaces control characters in names from users, because a terminal would interpret them.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && !strconv.IsPrint(r) {
			return '�'
		}
		return r
	}, s)
}
