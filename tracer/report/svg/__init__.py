"""Pictures in SVG: of a dispatch path, of bars, of a roofline; with real text, for light and dark pages."""
