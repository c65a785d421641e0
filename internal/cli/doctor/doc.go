// Package doctor checks an installation and suggests how to repair it.
package doctor
