// Package libvirt is a folder of examples and a hook for libvirt; its tests hold them to what libvirt takes.
package libvirt
