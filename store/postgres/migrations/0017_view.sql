-- Only the file's view is another one: a server's reads bytes by itself.
SELECT 1;
