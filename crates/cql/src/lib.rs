//! What the client said: lexer, AST, parser, and printing back to text.
