// Package customization interprets kinds by the Lua scripts of ResourceInterpreterCustomizations.
package customization
