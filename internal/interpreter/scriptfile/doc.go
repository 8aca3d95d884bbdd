// Package scriptfile writes the scripts of a ResourceInterpreterCustomization as one Lua file, for people to edit, and reads it back.
//
// Lines that begin with ---@ are marks: they say what the customization is called, which kind it is about and where the script of
// a rule begins. Lines that begin with --## are explanations, which come and go. Everything else is the scripts', to the letter.
package scriptfile
